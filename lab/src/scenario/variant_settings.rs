//! Puts the settings of a variant into a scenario file.

use serde_json::{Map, Value};

use super::file::ScenarioFile;
use super::model::{FlowChange, FlowGroup};
use super::variant::AlgorithmVariant;

impl ScenarioFile {
    /// Gives the algorithms the settings of `variant`, but for parameters that the file sets itself. Answers whether
    /// each part of the variant changes something.
    #[must_use]
    pub fn apply(&mut self, variant: AlgorithmVariant) -> bool {
        let AlgorithmVariant { preset, baselines } = variant;
        self.head.variant = variant;
        let by_preset = preset.map(|it| self.set(|cc| it.parameter(cc)));
        let by_baselines = baselines.map(|it| self.set(|cc| it.parameter(cc)));
        by_preset.unwrap_or(true) && by_baselines.unwrap_or(true)
    }

    fn set(&mut self, parameter: impl Fn(&str) -> Option<(&'static str, Value)>) -> bool {
        let mut changed = false;
        let mut add = |cc: &str, parameters: &mut Map<String, Value>| {
            let Some((name, value)) = parameter(cc) else { return };
            if !parameters.contains_key(name) {
                parameters.insert(name.to_owned(), value);
                changed = true;
            }
        };
        for group in self.cells.iter_mut().flat_map(|cell| &mut cell.scenario.groups) {
            let FlowGroup { cc, parameters, change, .. } = group;
            add(cc.as_str(), parameters);
            for FlowChange { cc, parameters, .. } in change {
                if let Some(cc) = cc {
                    add(cc.as_str(), parameters);
                }
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use millrace_cc::registry::{self, Spec};

    use super::super::variant::{
        AlgorithmPreset, BaselineSettings, PCC_BASELINES, WINDOW_BASELINES,
    };
    use super::*;

    fn file() -> ScenarioFile {
        let text = "name = \"a\"\ntitle = \"A\"\nduration_s = 10\n\
                    link = { rate_mbps = 1, rtt_ms = 10, buffer_bytes = 15000 }\n\
                    [sweep]\n\"flow.0.cc\" = [\"vivace-loss\", \"iris-min\", \"allegro\", \"bbr\", \"cubic\"]\n\
                    [[flow]]\ncc = \"vivace-loss\"\n[[flow.change]]\nat_s = 5\ncc = \"vivace-lte\"\n\
                    [[flow]]\ncc = \"vegas\"\nparameters = { paced = true }\n";
        ScenarioFile::parse(text, Path::new("a.toml")).unwrap()
    }

    fn first_parameters(file: &ScenarioFile) -> Vec<String> {
        let of = |cell: &crate::scenario::Cell| {
            serde_json::to_string(&cell.scenario.groups[0].parameters).unwrap()
        };
        file.cells.iter().map(of).collect()
    }

    #[test]
    fn presets_are_of_the_papers_algorithms_alone() {
        let preset = |preset| AlgorithmVariant { preset: Some(preset), baselines: None };
        let mut published = file();
        assert!(published.apply(preset(AlgorithmPreset::Published)));
        let set = r#"{"preset":"published"}"#;
        assert_eq!(first_parameters(&published), [set, set, "{}", "{}", "{}"]);
        let change = &published.cells[4].scenario.groups[0].change[0];
        assert_eq!(change.parameters["preset"], "published");

        let mut code = file();
        assert!(code.apply(preset(AlgorithmPreset::Nsdi18Code)));
        let set = r#"{"preset":"nsdi18-code"}"#;
        assert_eq!(first_parameters(&code), [set, "{}", "{}", "{}", "{}"]);
        assert!(!AlgorithmPreset::Nsdi18Code.is_of("iris-min"), "no code was released");
        assert!(!AlgorithmPreset::Nsdi18Code.is_of("vivace-weighted"));
    }

    #[test]
    fn baselines_are_those_of_2018_unless_the_file_says_otherwise() {
        let baselines = |it| AlgorithmVariant { preset: None, baselines: Some(it) };
        let mut of_2018 = file();
        assert!(of_2018.apply(baselines(BaselineSettings::Of2018)));
        let expected = ["{}", "{}", r#"{"preset":"published"}"#, "{}", r#"{"paced":false}"#];
        assert_eq!(first_parameters(&of_2018), expected);
        assert_eq!(of_2018.cells[0].scenario.groups[1].parameters["paced"], true);

        let mut without = file();
        assert!(without.apply(baselines(BaselineSettings::Of2018WithoutPolicer)));
        assert_eq!(first_parameters(&without)[3], r#"{"policer_detection":false}"#);
    }

    #[test]
    fn every_parameter_of_a_variant_is_one_of_its_algorithm() {
        for cc in registry::names() {
            let presets = [AlgorithmPreset::Published, AlgorithmPreset::Nsdi18Code];
            let all = presets.map(|preset| preset.parameter(cc)).into_iter();
            let all = all.chain([BaselineSettings::Of2018WithoutPolicer.parameter(cc)]);
            for (name, value) in all.flatten() {
                assert!(registry::find(&Spec::named(cc).with(name, value)).is_ok(), "{cc} {name}");
            }
        }
        for cc in WINDOW_BASELINES.into_iter().chain(PCC_BASELINES).chain(["bbr"]) {
            assert!(BaselineSettings::Of2018WithoutPolicer.parameter(cc).is_some(), "{cc}");
        }
    }

    #[test]
    fn a_variant_that_changes_nothing_says_so() {
        let text = "name = \"a\"\ntitle = \"A\"\nduration_s = 10\n\
                    link = { rate_mbps = 1, rtt_ms = 10, buffer_bytes = 15000 }\n[[flow]]\ncc = \"iris-min\"\n";
        let mut file = ScenarioFile::parse(text, Path::new("a.toml")).unwrap();
        let preset = Some(AlgorithmPreset::Published);
        let baselines = Some(BaselineSettings::Of2018);
        assert!(!file.clone().apply(AlgorithmVariant { preset, baselines }), "no baseline");
        assert!(file.apply(AlgorithmVariant { preset, baselines: None }));
    }
}
