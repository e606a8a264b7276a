//! A copy of `nginx-conf/` whose paths lie in a directory of the test, and nginx started on it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use millrace_e2e::binaries;
use millrace_e2e::program::Program;
use millrace_e2e::wait::{self, DEFAULT_TIMEOUT};
use millrace_lab::netns::Namespace;
use nix::unistd::Group;
use serde_json::Value;
use tempfile::TempDir;

/// Where the shipped files expect things, and where they are in the copy.
const PLACES: [(&str, &str); 5] = [
    // Before the next one, of which its name begins.
    ("/run/millrace-nginx", "nginx"),
    ("/run/millrace", "run"),
    ("/var/log/nginx", "log"),
    ("/etc/millrace", "etc"),
    ("/srv/millrace/video", "video"),
];

/// nginx's workers run as this user and group.
pub const WORKERS: &str = "www-data";

/// The directory.
pub struct Site(TempDir);

impl Site {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The workers look for sockets and files in it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let site = Self(dir);
        for (_, place) in PLACES {
            fs::create_dir(site.path(place)).unwrap();
        }
        let workers = Group::from_name(WORKERS).unwrap().expect("the package nginx makes it").gid;
        for place in ["nginx", "run"] {
            chown(site.path(place), None, Some(workers.as_raw())).unwrap();
            fs::set_permissions(site.path(place), fs::Permissions::from_mode(0o750)).unwrap();
        }
        chown(site.path("video"), Some(workers.as_raw()), None).unwrap();
        let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../nginx-conf");
        site.copy(&shipped, &site.path("etc/nginx"));
        site
    }

    /// A path below it.
    pub fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn copy(&self, from: &Path, to: &Path) {
        fs::create_dir(to).unwrap();
        for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
            let to = to.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                self.copy(&entry.path(), &to);
            } else {
                fs::write(to, self.moved(&fs::read_to_string(entry.path()).unwrap())).unwrap();
            }
        }
    }

    fn moved(&self, text: &str) -> String {
        PLACES.iter().fold(text.to_owned(), |text, (shipped, here)| {
            text.replace(shipped, self.path(here).to_str().unwrap())
        })
    }

    /// Changes a file of `nginx-conf/`, as an operator would.
    pub fn edit(&self, file: &str, from: &str, to: &str) {
        let path = self.path("etc/nginx").join(file);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} does not have {from:?}");
        fs::write(path, text.replace(from, &self.moved(to))).unwrap();
    }

    /// Starts nginx with `EDGE/nginx.conf`; the sockets `listen` come from the launcher, if any do.
    pub fn start(&self, namespace: &Namespace, edge: &str, listen: &[&str]) -> Program {
        let config = self.path(&format!("etc/nginx/{edge}/nginx.conf"));
        let mut command = if listen.is_empty() {
            let mut command = namespace.command("nginx");
            command.args(["-g", "daemon off;"]);
            command
        } else {
            let client = binaries::path("millrace-client");
            let mut command = namespace.command("setpriv");
            command.arg("--no-new-privs").args(["--bounding-set", &bounding_set()]);
            command.arg(client).arg("nginx");
            for address in listen {
                command.arg("--listen").arg(self.moved(address));
            }
            command.arg("--");
            command
        };
        command.args(["-e", "stderr", "-c"]).arg(config);
        let mut nginx = Program::start(edge, command);
        // Written when the sockets are open.
        let pid = self.path(&format!("nginx/{edge}.pid"));
        wait::for_true("nginx's pid file", DEFAULT_TIMEOUT, || {
            assert!(nginx.is_running(), "nginx has ended:\n{}", nginx.log_text());
            fs::read_to_string(&pid).is_ok_and(|text| text.trim() == nginx.pid().to_string())
        });
        nginx
    }

    /// The error log.
    pub fn errors(&self, edge: &str) -> String {
        fs::read_to_string(self.path(&format!("log/millrace-{edge}.error.log"))).unwrap_or_default()
    }

    /// The lines of an access log, each of them JSON.
    pub fn log(&self, edge: &str) -> Vec<Value> {
        let path = self.path(&format!("log/millrace-{edge}.log"));
        let text = fs::read_to_string(path).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }

    /// What an edge logged about the flow that came from `viewer`, an address and a port.
    #[track_caller]
    pub fn flow(&self, edge: &str, viewer: SocketAddr) -> Value {
        let of_viewer = |line: &Value| {
            line["viewer"] == viewer.ip().to_string() && line["viewer_port"] == viewer.port()
        };
        wait::until(DEFAULT_TIMEOUT, || self.log(edge).into_iter().find(of_viewer))
            .unwrap_or_else(|| panic!("no line is of {viewer}: {:#?}", self.log(edge)))
    }

    /// The line of an access log that has these values, waited for: nginx writes it at the end of
    /// the flow or request.
    #[track_caller]
    pub fn logged(&self, edge: &str, values: &[(&str, &str)]) -> Value {
        let has = |line: &Value| values.iter().all(|(key, value)| line[*key] == *value);
        wait::until(DEFAULT_TIMEOUT, || self.log(edge).into_iter().find(has))
            .unwrap_or_else(|| panic!("no line has {values:?}: {:#?}", self.log(edge)))
    }
}

/// The capabilities that the shipped unit leaves, as setpriv writes them.
fn bounding_set() -> String {
    let unit =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/millrace-nginx.service");
    let text = fs::read_to_string(unit).unwrap();
    let left = text.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let left = left.split(' ').map(|name| name.strip_prefix("CAP_").unwrap().to_lowercase());
    left.fold("-all".to_owned(), |set, name| format!("{set},+{name}"))
}
