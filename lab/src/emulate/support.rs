//! What the emulator can run.

use super::address_plan::MAX_FLOWS;
use crate::emulator::link_trace::MAX_RUN_TIME;
use crate::scenario::{App, Scenario, Via};

/// # Errors
/// What the emulator does not support of it.
pub(super) fn can_be_emulated(scenario: &Scenario) -> Result<(), String> {
    let flows: u64 = scenario.groups.iter().map(|group| group.count).sum();
    if flows > MAX_FLOWS {
        return Err(format!("{flows} flows; the emulator takes {MAX_FLOWS}"));
    }
    if scenario.duration_s > MAX_RUN_TIME.as_secs_f64() {
        let (max_s, duration_s) = (MAX_RUN_TIME.as_secs(), scenario.duration_s);
        return Err(format!("{duration_s} s long; the emulator takes {max_s} s"));
    }
    for group in &scenario.groups {
        if group.via == Via::External {
            return Err(format!("{}: external controllers run in the simulator only", group.cc));
        }
        if group.path.saved.is_some() {
            return Err("flows with saved parameters run in the simulator only".to_owned());
        }
        match group.app {
            App::Bulk => {}
            App::Encoder(_) => return Err("live encoders run in the simulator only".to_owned()),
            App::Dash { rate_cap: true, .. } => {
                return Err("rate_cap runs in the simulator only".to_owned());
            }
            App::OnOff { .. } if !group.upwards => {}
            App::OnOff { .. } => return Err("segments go down only".to_owned()),
            App::Dash { .. } | App::Rtsp { .. } if !group.upwards => {}
            App::Dash { .. } | App::Rtsp { .. } => return Err("videos go down only".to_owned()),
        }
        if group.cc == crate::simulate::MCC && group.via != Via::Proxy {
            return Err("mcc selects in the tunnel only".to_owned());
        }
        if !group.change.is_empty() && group.via != Via::Proxy {
            return Err("algorithms can be changed in the tunnel only".to_owned());
        }
        if group.change.iter().any(|change| !change.parameters.is_empty()) {
            let problem = "an algorithm that takes over has its default parameters on the wire";
            return Err(problem.to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::scenario::ScenarioFile;

    #[test]
    fn capped_players_are_skipped() {
        let text = "name = \"e\"\ntitle = \"E\"\nduration_s = 10\n[link]\nrate_mbps = 10\nrtt_ms = 20\n\
                    buffer_bytes = 25000\n[[flow]]\ncc = \"cubic\"\napp = \"dash\"\nrate_cap = true\n";
        let file = ScenarioFile::parse(text, Path::new("e.toml")).unwrap();
        let error = can_be_emulated(&file.cells[0].scenario).unwrap_err();
        assert_eq!(error, "rate_cap runs in the simulator only");
    }

    #[test]
    fn external_controllers_are_skipped() {
        let text = "name = \"e\"\ntitle = \"E\"\nduration_s = 1\n[link]\nrate_mbps = 10\nrtt_ms = 20\n\
                    buffer_bytes = 25000\n[[flow]]\ncc = \"external:x\"\n[external.x]\ncommand = [\"x\"]\n";
        let file = ScenarioFile::parse(text, Path::new("e.toml")).unwrap();
        let error = can_be_emulated(&file.cells[0].scenario).unwrap_err();
        assert_eq!(error, "external:x: external controllers run in the simulator only");
    }
}
