//! The small files: a run's manifest, a run's state, the data directory's marker. Pure. Their bytes
//! are frozen by a test; a change raises [`FORMAT`].

use common::{
    board::Board,
    plan::PlanSpec,
    run::{RunId, SubmitKey},
};
use serde::{Deserialize, Serialize};

use super::{
    Recheck, RunManifest, RunState, SymmetricCounts,
    line::Link,
    text::{BadField, BadText, FILE_FORMAT, seal, unseal, unseal_of},
};

/// The version of the data directory: of everything in it together.
pub(crate) const FORMAT: u32 = 2;

/// Directories of this version are read too: their journal lines say less.
pub(crate) const OLDEST_FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    run: String,
    n: u8,
    layout: String,
    task_cost: u64,
    plan: String,
    plan_version: u16,
    priority: i32,
    created_unix_ms: u64,
    // Absent where there is none, as in every manifest of before there were keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// The text of a manifest, without a line end.
pub(crate) fn encode(manifest: &RunManifest) -> String {
    let fields = Fields {
        format: FILE_FORMAT,
        run: manifest.run.to_string(),
        n: manifest.spec.board.n(),
        layout: manifest.spec.layout.name().to_owned(),
        task_cost: manifest.spec.task_cost,
        plan: manifest.plan.to_string(),
        plan_version: manifest.plan_version,
        priority: manifest.priority,
        created_unix_ms: manifest.created_unix_ms,
        key: manifest.key.as_ref().map(SubmitKey::to_string),
    };
    seal(&fields)
}

/// Reads a manifest without its line end; says what is wrong with it otherwise.
pub(crate) fn decode(text: &str) -> Result<RunManifest, BadText> {
    let fields: Fields = unseal(text)?;
    let spec = PlanSpec {
        board: Board::new(fields.n).map_err(|error| BadField::new("n", error))?,
        layout: BadField::parse("layout", &fields.layout)?,
        task_cost: fields.task_cost,
    };
    Ok(RunManifest {
        run: BadField::parse("run", &fields.run)?,
        spec,
        plan: BadField::parse("plan", &fields.plan)?,
        plan_version: fields.plan_version,
        priority: fields.priority,
        created_unix_ms: fields.created_unix_ms,
        key: match fields.key {
            Some(key) => Some(BadField::parse("key", &key)?),
            None => None,
        },
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateFields {
    format: u32,
    run: String,
    state: String,
    lines: u64,
    head: String,
}

/// A run's state, and how far the journal was then: a shorter journal has lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SavedState {
    pub(crate) state: RunState,
    /// Lines of the journal.
    pub(crate) lines: u64,
    /// What the line after those names as the one before.
    pub(crate) head: Link,
}

const STATES: [RunState; 6] = [
    RunState::Running,
    RunState::Paused,
    RunState::Cancelled,
    RunState::Complete,
    RunState::Contradicted,
    RunState::Disputed,
];

/// The text of a state file, without a line end.
pub(crate) fn encode_state(run: RunId, saved: &SavedState) -> String {
    seal(&StateFields {
        format: FILE_FORMAT,
        run: run.to_string(),
        state: saved.state.name().to_owned(),
        lines: saved.lines,
        head: saved.head.to_string(),
    })
}

fn check_run(run: RunId, found: String) -> Result<(), BadText> {
    match found == run.to_string() {
        true => Ok(()),
        false => Err(BadText::OtherRun { found, run }),
    }
}

/// Reads a state file of `run` without its line end.
pub(crate) fn decode_state(run: RunId, text: &str) -> Result<SavedState, BadText> {
    let fields: StateFields = unseal(text)?;
    check_run(run, fields.run)?;
    let state = STATES
        .into_iter()
        .find(|state| state.name() == fields.state);
    Ok(SavedState {
        state: state
            .ok_or_else(|| BadField::new("state", format!("there is no '{}'", fields.state)))?,
        lines: fields.lines,
        head: BadField::parse("head", &fields.head)?,
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SymmetricFields {
    format: u32,
    run: String,
    half_turn: String,
    quarter_turn: String,
}

/// The text of the file with a run's symmetric solutions, without a line end.
pub(crate) fn encode_symmetric(run: RunId, counts: SymmetricCounts) -> String {
    seal(&SymmetricFields {
        format: FILE_FORMAT,
        run: run.to_string(),
        half_turn: counts.half_turn.to_string(),
        quarter_turn: counts.quarter_turn.to_string(),
    })
}

/// Reads the symmetric solutions of `run`.
pub(crate) fn decode_symmetric(run: RunId, text: &str) -> Result<SymmetricCounts, BadText> {
    let fields: SymmetricFields = unseal(text)?;
    check_run(run, fields.run)?;
    Ok(SymmetricCounts {
        half_turn: BadField::parse("half_turn", &fields.half_turn)?,
        quarter_turn: BadField::parse("quarter_turn", &fields.quarter_turn)?,
    })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecheckFields {
    format: u32,
    run: String,
    /// `auto`, `all`, or millionths of the tasks.
    recheck: String,
}

/// The text of the file that says how much of a run is counted twice, without a line end.
pub(crate) fn encode_recheck(run: RunId, recheck: Recheck) -> String {
    seal(&RecheckFields {
        format: FILE_FORMAT,
        run: run.to_string(),
        recheck: match recheck {
            Recheck::Auto => "auto".to_owned(),
            Recheck::All => "all".to_owned(),
            Recheck::Millionths(millionths) => millionths.to_string(),
        },
    })
}

/// Reads how much of `run` is counted twice.
pub(crate) fn decode_recheck(run: RunId, text: &str) -> Result<Recheck, BadText> {
    let fields: RecheckFields = unseal(text)?;
    check_run(run, fields.run)?;
    match fields.recheck.as_str() {
        "auto" => Ok(Recheck::Auto),
        "all" => Ok(Recheck::All),
        millionths => millionths
            .parse()
            .ok()
            .filter(|millionths| *millionths <= 1_000_000)
            .map(Recheck::Millionths)
            .ok_or_else(|| {
                let why = format!("'{millionths}' is no part of the tasks");
                BadField::new("recheck", why).into()
            }),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermFields {
    format: u32,
    term: u64,
}

/// The text of the file with the coordinator's term, without a line end.
pub(crate) fn encode_term(term: u64) -> String {
    seal(&TermFields {
        format: FILE_FORMAT,
        term,
    })
}

/// Reads the coordinator's term.
pub(crate) fn decode_term(text: &str) -> Result<u64, BadText> {
    unseal(text).map(|fields: TermFields| fields.term)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkerFields {
    format: u32,
    program: String,
}

const PROGRAM: &str = "queens coordinator";

/// The text of the file that marks a data directory.
pub(crate) fn marker() -> String {
    seal(&MarkerFields {
        format: FORMAT,
        program: PROGRAM.to_owned(),
    })
}

/// The format that a marker states; what is wrong with it otherwise.
pub(crate) fn check_marker(text: &str) -> Result<u32, BadText> {
    let fields: MarkerFields = unseal_of(text, OLDEST_FORMAT..=FORMAT)?;
    if fields.program == PROGRAM {
        Ok(fields.format)
    } else {
        Err(BadText::OtherProgram(fields.program))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::text::format_of, *};

    fn manifest() -> RunManifest {
        RunManifest {
            run: RunId(0xab),
            spec: PlanSpec {
                board: Board::new(27).unwrap(),
                layout: common::method::Layout::Border,
                task_cost: 60_000_000,
            },
            plan: "0123456789abcdef".repeat(4).parse().unwrap(),
            plan_version: 4,
            priority: -2,
            created_unix_ms: 1_700_000_000_000,
            key: None,
        }
    }

    const SYMMETRIC: SymmetricCounts = SymmetricCounts {
        half_turn: 3000,
        quarter_turn: 64,
    };

    #[test]
    fn the_texts_are_frozen() {
        let saved = SavedState {
            state: RunState::Complete,
            lines: 3,
            head: Link::after(b"line"),
        };
        let texts = [
            encode(&manifest()),
            encode_state(RunId(0xab), &saved),
            marker(),
            encode_symmetric(RunId(0xab), SYMMETRIC),
        ];
        let expected = [
            concat!(
                r#"{"format":1,"run":"00000000000000ab","n":27,"layout":"border","#,
                r#""task_cost":60000000,"plan":"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","#,
                r#""plan_version":4,"priority":-2,"created_unix_ms":1700000000000,"#,
                r#""check":"cd2cb152634287d3d106944b6991efa3271ab8f469ec329b934b01fb9fc8f101"}"#,
            ),
            concat!(
                r#"{"format":1,"run":"00000000000000ab","state":"complete","lines":3,"head":"38a9c1e721584da284b90ceea4ed7eb8","#,
                r#""check":"0c2c3d4426714acdffcb08c37604bc036d6dbbe2acb8f2457d904172566f0d02"}"#,
            ),
            concat!(
                r#"{"format":2,"program":"queens coordinator","#,
                r#""check":"311f81474de3cbdca29b50e76003ea0480a8a2ee67867da4eb29db88c370de05"}"#,
            ),
            concat!(
                r#"{"format":1,"run":"00000000000000ab","half_turn":"3000","quarter_turn":"64","#,
                r#""check":"686e85266630ccb3f7c4c4c15a997a87d18352bef08703330dbe1821e6a33a1b"}"#,
            ),
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn texts_round_trip() {
        assert_eq!(decode(&encode(&manifest())), Ok(manifest()));
        let keyed = RunManifest {
            key: Some("nightly-1".parse().unwrap()),
            ..manifest()
        };
        let text = encode(&keyed);
        assert!(text.contains(r#""created_unix_ms":1700000000000,"key":"nightly-1","check":"#));
        assert_eq!(decode(&text), Ok(keyed));
        for state in STATES {
            let saved = SavedState {
                state,
                lines: 9,
                head: Link::after(b"line"),
            };
            let text = encode_state(RunId(1), &saved);
            assert_eq!(decode_state(RunId(1), &text), Ok(saved));
            assert!(decode_state(RunId(2), &text).is_err());
        }
        let text = encode_symmetric(RunId(1), SYMMETRIC);
        assert_eq!(decode_symmetric(RunId(1), &text), Ok(SYMMETRIC));
        assert!(decode_symmetric(RunId(2), &text).is_err());
        for recheck in [Recheck::Auto, Recheck::All, Recheck::Millionths(20_000)] {
            let text = encode_recheck(RunId(1), recheck);
            assert_eq!(decode_recheck(RunId(1), &text), Ok(recheck));
            assert!(decode_recheck(RunId(2), &text).is_err());
        }
        let too_much = encode_recheck(RunId(1), Recheck::Millionths(1_000_001));
        assert!(decode_recheck(RunId(1), &too_much).is_err());
        assert_eq!(decode_term(&encode_term(u64::MAX)), Ok(u64::MAX));
        assert_eq!(check_marker(&marker()), Ok(FORMAT));
    }

    #[test]
    fn a_changed_byte_is_found_in_any_text() {
        let text = encode(&manifest());
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] ^= 1;
            let changed = String::from_utf8(changed).unwrap();
            assert!(decode(&changed).is_err(), "{changed}");
        }
    }

    #[test]
    fn another_format_is_named() {
        let error = decode(&encode(&manifest()).replace(r#""format":1"#, r#""format":12"#));
        let error = error.unwrap_err();
        assert!(
            matches!(
                error,
                BadText::Format {
                    found: 12,
                    known: 1
                }
            ),
            "{error}"
        );
        assert_eq!(format_of("{\"format\":7,\"new\":[]}"), Some(7));
        assert_eq!(format_of("no JSON"), None);
    }
}
