use super::*;
use crate::{Class, Player};

fn load(text: &str) -> LuaRules {
    LuaRules::load("rules.lua", text).unwrap()
}

fn select(text: &str, input: &RuleInput) -> Result<Option<Choice>, String> {
    load(text).select(input)
}

fn chosen(text: &str, input: &RuleInput) -> Option<String> {
    select(text, input).unwrap().map(|choice| choice.algorithm)
}

#[test]
fn paper_rule_selects_by_loss() {
    let input = |loss: f64| RuleInput { loss, smoothed_rtt_ms: 30.0, ..RuleInput::default() };
    for text in [
        include_str!("../../../rules/paper-published.lua"),
        include_str!("../../../rules/paper.lua"),
    ] {
        assert_eq!(chosen(text, &input(0.04)).unwrap(), "westwood");
        assert_eq!(chosen(text, &input(0.005)).unwrap(), "bbr");
        // No choice before the first RTT sample.
        assert_eq!(chosen(text, &RuleInput { loss: 0.0, ..RuleInput::default() }), None);
    }
}

#[test]
fn rules_receive_every_field() {
    let input = RuleInput {
        connection: 7,
        class: Class::Rtsp,
        algorithm: "copa".to_owned(),
        switches: 3,
        ecn_ce: 0.5,
        player: Some(Player { buffer_s: Some(2.5), starved: true, ..Player::default() }),
        ..RuleInput::default()
    };
    let rules = load("function select() end");
    let Value::Table(all) = rules.lua.to_value(&input).unwrap() else { panic!("a table") };
    let mut names: Vec<String> = all.pairs::<String, Value>().map(|pair| pair.unwrap().0).collect();
    names.sort();
    let list = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(",");
    let text = format!(
        "function select(flow)
           for _, name in ipairs({{{list}}}) do assert(flow[name] ~= nil, name) end
           for name in pairs(flow) do names = (names or 0) + 1 end
           assert(names == {}, names)
           assert(flow.class == 'rtsp' and flow.player.buffer_s == 2.5 and flow.player.starved)
           return flow.algorithm, 'because of ' .. flow.connection
         end",
        names.len()
    );
    let choice = select(&text, &input).unwrap().unwrap();
    assert_eq!(choice.algorithm, "copa");
    assert_eq!(choice.reason.as_deref(), Some("because of 7"));
}

#[test]
fn player_is_nil_without_report() {
    let mut rules = load("function select(flow) return flow.player and 'a' or 'b' end");
    let with = RuleInput { player: Some(Player::default()), ..RuleInput::default() };
    assert_eq!(rules.select(&with).unwrap().unwrap().algorithm, "a");
    assert_eq!(rules.select(&RuleInput::default()).unwrap().unwrap().algorithm, "b");
}

#[test]
fn sandbox_hides_unsafe_functions() {
    for name in [
        "io",
        "os",
        "require",
        "package",
        "debug",
        "load",
        "loadfile",
        "dofile",
        "collectgarbage",
        "pcall",
        "xpcall",
        "setmetatable",
        "getmetatable",
        "rawset",
        "coroutine",
        "print",
        "string.find",
        "string.gsub",
        "string.rep",
        "table.move",
    ] {
        let text = format!("function select() return type({name}) end");
        assert_eq!(chosen(&text, &RuleInput::default()).unwrap(), "nil", "{name}");
    }
    let error =
        select("function select() return ('a'):rep(9) end", &RuleInput::default()).unwrap_err();
    assert!(error.contains("rep"), "{error}");
}

#[test]
fn endless_rule_is_stopped_each_time() {
    let mut rules = load("function select(flow) while flow.loss > 0 do end return 'bbr' end");
    let stuck = RuleInput { loss: 0.1, ..RuleInput::default() };
    for _ in 0..3 {
        let error = rules.select(&stuck).unwrap_err();
        assert_eq!(error, "rules.lua: took too many instructions");
        assert_eq!(rules.select(&RuleInput::default()).unwrap().unwrap().algorithm, "bbr");
    }
}

/// Processor time of one call of `select`, and its error.
fn cost(prepare: &str, body: &str) -> (Duration, String) {
    let mut rules = load(&format!("{prepare} function select(flow) {body} end"));
    let begun = processor_time();
    let outcome = rules.select(&RuleInput::default());
    let took = processor_time() - begun;
    (took, outcome.err().unwrap_or_default())
}

/// Each case would take seconds within the limits of instructions and memory.
#[test]
fn time_limit_stops_rule_with_few_slow_instructions() {
    let long = "s = 'abcdefgh' while #s < 1000000 do s = s .. s end";
    let many = "t = {} for i = 1, 130000 do t[i] = i * 7919 % 130000 end";
    let alike = "a = s .. 'a' s = s .. 'b'
                 t = {} for i = 1, 30000 do t[i] = i % 2 == 0 and a or s end";
    let cases = [
        (long.to_owned(), "for i = 1, 30000 do x = s .. i end"),
        (long.to_owned(), "for i = 1, 20000 do x = s:upper() end"),
        (long.to_owned(), "for i = 1, 20000 do x = string.format('%q', s) end"),
        (long.to_owned(), "for i = 1, 20000 do x = ({})[s .. i] end"),
        (many.to_owned(), "for i = 1, 20000 do table.insert(t, 1, 0) table.remove(t, 1) end"),
        (many.to_owned(), "for i = 1, 20000 do x = table.concat(t) end"),
        (many.to_owned(), "table.sort(t)"),
        (format!("{} {alike}", long.replace("1000000", "500000")), "table.sort(t)"),
    ];
    for (prepare, body) in cases {
        let (took, error) = cost(&prepare, body);
        println!("{took:?} {error} {body}");
        assert!(error.contains("took") || error.contains("memory"), "{body}: {error:?}");
        // More than the limit of 50 ms, because a loaded machine has cold caches.
        assert!(took < Duration::from_millis(400), "{body}: {took:?}");
    }
    let (_, error) = cost(long, "for i = 1, 30000 do x = s .. i end");
    assert_eq!(error, "rules.lua: took more than 50ms of processor time");
}

#[test]
fn memory_limit_stops_rules() {
    let mut rules =
        load("t = {} function select() for i = 1, 5000 do t[#t + 1] = i .. 'x' end end");
    let error = (0..200).find_map(|_| rules.select(&RuleInput::default()).err()).unwrap();
    assert!(error.contains("memory"), "{error}");
    assert!(LuaRules::load("a", "x = 'a' while true do x = x .. x end").is_err());
}

#[test]
fn errors_name_their_location() {
    let error = |text: &str| LuaRules::load("rules.lua", text).unwrap_err().to_string();
    assert_eq!(error("x = 1"), "rules.lua: there is no function select(flow)");
    assert!(error("function select(").starts_with("rules.lua:1:"), "{}", error("function select("));
    assert!(error("error('no')").contains("rules.lua:1: no"), "{}", error("error('no')"));

    let select = |text: &str| select(text, &RuleInput::default()).unwrap_err();
    let at = select("function select(flow)\n  return flow.rtt.min\nend");
    assert!(at.starts_with("rules.lua:2:") && at.contains("rtt"), "{at}");
    let at = select("function select(flow) return 3 end");
    assert!(at.contains("expected the name of an algorithm"), "{at}");
}

#[test]
fn tests_of_a_file_report_each_result() {
    let mut rules = load(
        "function select(flow) if flow.loss > 0.03 then return 'westwood' end end
         function test_loss() assert(select(flow{ loss = 0.05 }) == 'westwood') end
         function test_clean() assert(select(flow{}) == nil) end
         function test_wrong() assert(select(flow{ loss = 0.05 }) == 'bbr', 'not bbr') end
         function test_typo() flow{ los = 1 } end
         function test_endless() while true do end end",
    );
    let found = rules.test();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["test_clean", "test_endless", "test_loss", "test_typo", "test_wrong"]);
    assert!(found[0].1.is_ok() && found[2].1.is_ok());
    let error = |index: usize| found[index].1.clone().unwrap_err();
    assert_eq!(error(1), "rules.lua: took too many instructions");
    assert!(error(3).contains("unknown field los"), "{}", error(3));
    assert!(error(4).contains("not bbr"), "{}", error(4));
}

#[test]
fn shipped_rules_pass_their_tests_and_name_known_algorithms() {
    let known = millrace_cc::registry::names();
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
    let mut files = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut rules = LuaRules::load(&path.display().to_string(), &text).unwrap();
        let found = rules.test();
        assert!(!found.is_empty(), "{}", path.display());
        for (name, done) in found {
            assert_eq!(done, Ok(()), "{}: {name}", path.display());
        }
        for word in text.split('"').skip(1).step_by(2).filter(|word| word.contains('-')) {
            assert!(known.contains(&word), "{}: {word}", path.display());
        }
        files += 1;
    }
    assert_eq!(files, 6);
}
