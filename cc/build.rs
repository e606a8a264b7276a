//! Says what to do when quiche's source is not the one that the patches make, as after a pull:
//! without it the compiler would complain about something that nobody can relate to that.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=quiche");
    println!("cargo::rerun-if-changed=run-make-setup-first/stamp");
    let current = Command::new("sh").args(["quiche/prepare.sh", "--check"]).status();
    if !current.is_ok_and(|status| status.success()) {
        println!(
            "cargo::error=quiche's patches have changed: run cc/quiche/prepare.sh, or make setup"
        );
    }
}
