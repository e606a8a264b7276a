//! The documented examples load, hold every key there is, and show its default.

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use millrace_config::{
    ClientConfig, ConfigError, ServerConfig, load_client, load_server, parse_client, parse_server,
};
use support::known;

const CLIENT: &str = include_str!("../../../proxy-client/client.example.toml");
const SERVER: &str = include_str!("../../../proxy-server/server.example.toml");

fn client(text: &str) -> Result<ClientConfig, ConfigError> {
    parse_client(text, Path::new("/etc/millrace/client.toml"), &known)
}

fn server(text: &str) -> Result<ServerConfig, ConfigError> {
    parse_server(text, Path::new("/etc/millrace/server.toml"), &known)
}

#[test]
fn both_load() {
    let config = client(CLIENT).unwrap();
    assert_eq!(config.tunnel.servers[0].to_string(), "198.18.2.2:4433");
    assert_eq!(config.tunnel.mark, Some(0x4d52));
    assert_eq!(config.listen.len(), 4);
    let config = server(SERVER).unwrap();
    assert_eq!(config.allow[0].ports, [80..=80, 443..=443, 554..=554, 8000..=8100]);
}

#[test]
fn both_load_from_disk() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    load_client(&root.join("proxy-client/client.example.toml"), &known).unwrap();
    load_server(&root.join("proxy-server/server.example.toml"), &known).unwrap();
}

#[test]
fn relative_paths_start_at_the_file() {
    let config = client(CLIENT).unwrap();
    assert_eq!(config.tunnel.credentials.ca, PathBuf::from("/etc/millrace/ca.pem"));
    let config = server(&SERVER.replace("server.key", "/keys/server.key")).unwrap();
    assert_eq!(config.tunnel.credentials.ca, PathBuf::from("/etc/millrace/ca.pem"));
    assert_eq!(config.tunnel.credentials.private_key, PathBuf::from("/keys/server.key"));
}

type Parse<'a> = &'a dyn Fn(&str) -> Option<ConfigError>;

/// The keys that the schema has in the section that starts with `header`, as its own message about
/// an unknown key lists them.
fn keys_of(header: &str, text: &str, parse: Parse<'_>) -> Vec<String> {
    let with_unknown = match header {
        "" => format!("zzz = 1\n{text}"),
        _ => text.replacen(&format!("{header}\n"), &format!("{header}\nzzz = 1\n"), 1),
    };
    let error = parse(&with_unknown).unwrap_or_else(|| panic!("{header} takes any key"));
    let (_, expected) = error.problem.split_once("expected ").expect("a list of keys");
    assert!(error.problem.starts_with("unknown field `zzz`"), "{error}");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_schema_is_in_the_example() {
    let parse_client = |text: &str| client(text).err();
    let parse_server = |text: &str| server(text).err();
    let sides: [(&str, Parse<'_>); 2] = [(CLIENT, &parse_client), (SERVER, &parse_server)];
    for (text, parse) in sides {
        let mut keys = 0;
        for section in keys_of("", text, parse) {
            let header = match section.as_str() {
                "listen" => "[[listen]]".to_owned(),
                "destinations" => "[[destinations.allow]]".to_owned(),
                "direct" => "[[direct.allow]]".to_owned(),
                _ => format!("[{section}]"),
            };
            assert!(text.contains(&format!("\n{header}\n")), "the example lacks {header}");
            for key in keys_of(&header, text, parse) {
                let set = format!("\n{key} = ");
                let commented = format!("\n# {key} = ");
                let table = format!("\n# [{section}.{key}.");
                let list = format!("\n[[{section}.{key}]]\n");
                let has = [set, commented, table, list].iter().any(|shown| text.contains(shown));
                assert!(has, "lacks {section}.{key}");
                keys += 1;
            }
        }
        assert!(keys > 25, "found {keys} keys only");
    }
}

/// Without the line that sets it, a key has the value that the example shows.
#[test]
fn the_example_shows_the_defaults() {
    let mut lines = 0;
    for (text, is_client) in [(CLIENT, true), (SERVER, false)] {
        let show = |text: &str| {
            if is_client {
                client(text).map(|config| format!("{config:?}"))
            } else {
                server(text).map(|config| format!("{config:?}"))
            }
        };
        let whole = show(text).unwrap();
        let lists = [
            "[[listen]]",
            "[[listen.class_of_ports]]",
            "[[destinations.allow]]",
            "[[direct.allow]]",
        ];
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let is_key = !line.starts_with(['#', '[']) && line.contains(" = ");
            if !is_key || lists.contains(&section) {
                continue;
            }
            let without = text.replacen(&format!("\n{line}\n"), "\n", 1);
            match show(&without) {
                Ok(shown) => assert_eq!(shown, whole, "{section} {line}"),
                Err(error) => assert!(error.problem.starts_with("missing field"), "{error}"),
            }
            lines += 1;
        }
    }
    assert!(lines > 40, "found {lines} lines only");
}

#[test]
fn no_message_shows_a_private_key_in_the_wrong_place() {
    let secret = "MIGHAgEAMBMGByqGSM49AgEG";
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n");
    let pasted = CLIENT.replace("\"client.key\"", &format!("\"\"\"\n{pem}\"\"\""));
    let error = client(&pasted).unwrap_err();
    assert_eq!(error.key.as_deref(), Some("tunnel.private_key"));
    for error in [error, client(&pem).unwrap_err(), client(&format!("{CLIENT}{pem}")).unwrap_err()]
    {
        assert!(!format!("{error} {error:?}").contains(secret), "{error}");
    }
    let config = client(&format!("{CLIENT}\n# {secret}\n")).unwrap();
    assert!(!format!("{config:?}").contains(secret));
}

#[test]
fn certificate_files_are_checked_on_demand() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.toml");
    fs::write(&path, SERVER).unwrap();
    let config = load_server(&path, &known).unwrap();
    let error = config.check_files().unwrap_err();
    assert_eq!(error.key.as_deref(), Some("tunnel.client_ca"));
    assert_eq!(error.line, SERVER.lines().position(|l| l.starts_with("client_ca")).map(|l| l + 1));

    let certificate = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    for name in ["ca.pem", "server.pem", "server.key"] {
        fs::write(directory.path().join(name), certificate).unwrap();
    }
    let error = config.check_files().unwrap_err();
    assert_eq!(error.key.as_deref(), Some("tunnel.private_key"));
    assert!(error.problem.ends_with("has no PEM section PRIVATE KEY"), "{error}");

    fs::write(
        directory.path().join("server.key"),
        certificate.replace("CERTIFICATE", "PRIVATE KEY"),
    )
    .unwrap();
    config.check_files().unwrap();
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let absent = directory.path().join("absent.toml");
    let error = load_client(&absent, &known).unwrap_err();
    assert_eq!((error.file, error.line), (absent, None));
    let large = directory.path().join("large.toml");
    fs::write(&large, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(load_client(&large, &known).unwrap_err().problem.contains("longer than"));
    let binary = directory.path().join("binary.toml");
    fs::write(&binary, [0xff, 0xfe]).unwrap();
    assert!(load_client(&binary, &known).unwrap_err().problem.contains("UTF-8"));
}

/// What the examples only show as comments is right too.
#[test]
fn commented_congestion_control_loads() {
    let uncommented = |text: &str| {
        let mut whole = String::new();
        for line in text.lines() {
            let shown =
                ["[tunnel.class.", "congestion_control = ", "selectable_congestion_control = "]
                    .iter()
                    .any(|start| {
                        line.strip_prefix("# ").is_some_and(|rest| rest.starts_with(start))
                    });
            whole.push_str(if shown { &line[2..] } else { line });
            whole.push('\n');
        }
        whole
    };
    let config = client(&uncommented(CLIENT)).unwrap();
    let classes = &config.tunnel.transport.class_congestion_control;
    assert!(!classes.is_empty());
    assert!(config.listen.iter().any(|listen| listen.congestion_control.is_some()));
    let config = server(&uncommented(SERVER)).unwrap();
    assert!(!config.tunnel.transport.class_congestion_control.is_empty());
    let selectable = config.tunnel.selectable_congestion_control.unwrap();
    assert!(selectable.iter().any(|choice| !choice.parameters.is_empty()));
}
