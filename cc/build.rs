//! Fails the build with an instruction when quiche's source is out of date, as after a pull that changed its
//! patches. The compiler errors that follow otherwise do not name the cause.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../third_party/quiche");
    println!("cargo::rerun-if-changed=../third_party/run-make-setup-first/stamp");
    let current = Command::new("sh").args(["../third_party/quiche/prepare.sh", "--check"]).status();
    if !current.is_ok_and(|status| status.success()) {
        println!(
            "cargo::error=quiche's patches have changed: run third_party/quiche/prepare.sh, or make setup"
        );
    }
}
