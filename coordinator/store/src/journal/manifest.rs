//! The small files: a run's manifest and state, the directory's marker. Pure.
//! A test freezes their bytes; a change raises [`crate::journal::text::FORMAT`].

use common::{
    board::Board,
    messages::{
        run::{RunId, SubmitKey},
        sealed::as_text,
    },
    method::Layout,
    plan::{PlanHash, PlanSpec},
};
use scheduler::ledger::{Recheck, Settings};
use serde::{Deserialize, Serialize};

use crate::{
    RunManifest, RunState, SymmetricCounts,
    journal::{
        JournalEnd,
        text::{ChainHash, Damage, FORMAT, seal, unseal},
    },
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    format: u32,
    #[serde(with = "as_text")]
    run: RunId,
    n: u8,
    #[serde(with = "as_text")]
    layout: Layout,
    task_cost: u64,
    #[serde(with = "as_text")]
    plan: PlanHash,
    plan_version: u16,
    priority: i32,
    created_unix_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// Encodes a manifest, without a line end.
pub(crate) fn encode(manifest: &RunManifest) -> String {
    seal(&Fields {
        format: FORMAT,
        run: manifest.run,
        n: manifest.spec.board.n(),
        layout: manifest.spec.layout,
        task_cost: manifest.spec.task_cost,
        plan: manifest.plan,
        plan_version: manifest.plan_version,
        priority: manifest.priority,
        created_unix_ms: manifest.created_unix_ms,
        key: manifest.key.as_ref().map(SubmitKey::to_string),
    })
}

/// Decodes a manifest without its line end.
pub(crate) fn decode(text: &str) -> Result<RunManifest, Damage> {
    let fields: Fields = unseal(text)?;
    Ok(RunManifest {
        run: fields.run,
        spec: PlanSpec {
            board: Board::new(fields.n).map_err(Damage::new)?,
            layout: fields.layout,
            task_cost: fields.task_cost,
        },
        plan: fields.plan,
        plan_version: fields.plan_version,
        priority: fields.priority,
        created_unix_ms: fields.created_unix_ms,
        key: fields.key.map(|key| key.parse()).transpose().map_err(Damage::new)?,
    })
}

impl ChainHash {
    /// Returns the link that the first line of a run's journal names.
    pub(crate) fn first(manifest: &RunManifest) -> Self {
        Self::after(encode(manifest).as_bytes())
    }
}

fn check_run(run: RunId, found: RunId) -> Result<(), Damage> {
    match found == run {
        true => Ok(()),
        false => Err(Damage(format!("it belongs to run {found}, not {run}"))),
    }
}

/// A run's saved state and journal end: a journal shorter than that lost records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedState {
    format: u32,
    #[serde(with = "as_text")]
    run: RunId,
    pub(crate) state: RunState,
    pub(crate) lines: u64,
    /// The link that the next line names.
    #[serde(with = "as_text")]
    pub(crate) head: ChainHash,
}

/// Encodes a state file of a run whose journal ends at `end`, without a line end.
pub(crate) fn encode_state(run: RunId, state: RunState, end: &JournalEnd) -> String {
    let JournalEnd { lines, head, .. } = *end;
    seal(&SavedState { format: FORMAT, run, state, lines, head })
}

pub(crate) fn decode_state(run: RunId, text: &str) -> Result<SavedState, Damage> {
    let saved: SavedState = unseal(text)?;
    check_run(run, saved.run)?;
    Ok(saved)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SymmetricFields {
    format: u32,
    #[serde(with = "as_text")]
    run: RunId,
    #[serde(with = "as_text")]
    half_turn: u64,
    #[serde(with = "as_text")]
    quarter_turn: u64,
}

/// Encodes a run's symmetric solutions, without a line end.
pub(crate) fn encode_symmetric(run: RunId, counts: SymmetricCounts) -> String {
    let SymmetricCounts { half_turn, quarter_turn } = counts;
    seal(&SymmetricFields { format: FORMAT, run, half_turn, quarter_turn })
}

pub(crate) fn decode_symmetric(run: RunId, text: &str) -> Result<SymmetricCounts, Damage> {
    let SymmetricFields { run: found, half_turn, quarter_turn, .. } = unseal(text)?;
    check_run(run, found)?;
    Ok(SymmetricCounts { half_turn, quarter_turn })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SettingsFields {
    format: u32,
    #[serde(with = "as_text")]
    run: RunId,
    /// `auto`, `all`, or millionths of the tasks.
    recheck: String,
    priority: i32,
}

/// Encodes the settings of a run, without a line end.
pub(crate) fn encode_settings(run: RunId, settings: Settings) -> String {
    let recheck = match settings.recheck {
        Recheck::Auto => "auto".to_owned(),
        Recheck::All => "all".to_owned(),
        Recheck::Millionths(millionths) => millionths.to_string(),
    };
    seal(&SettingsFields { format: FORMAT, run, recheck, priority: settings.priority })
}

/// Decodes the settings of `run`.
pub(crate) fn decode_settings(run: RunId, text: &str) -> Result<Settings, Damage> {
    let fields: SettingsFields = unseal(text)?;
    check_run(run, fields.run)?;
    let recheck = match fields.recheck.as_str() {
        "auto" => Recheck::Auto,
        "all" => Recheck::All,
        millionths => millionths
            .parse()
            .ok()
            .filter(|millionths| *millionths <= 1_000_000)
            .map(Recheck::Millionths)
            .ok_or_else(|| Damage(format!("invalid recheck '{millionths}'")))?,
    };
    Ok(Settings { recheck, priority: fields.priority })
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TermFields {
    format: u32,
    term: u64,
}

/// Encodes the coordinator's term, without a line end.
pub(crate) fn encode_term(term: u64) -> String {
    seal(&TermFields { format: FORMAT, term })
}

pub(crate) fn decode_term(text: &str) -> Result<u64, Damage> {
    unseal(text).map(|fields: TermFields| fields.term)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkerFields {
    format: u32,
    program: String,
}

const PROGRAM: &str = "queens coordinator";

/// Encodes the marker of a data directory.
pub(crate) fn marker() -> String {
    seal(&MarkerFields { format: FORMAT, program: PROGRAM.to_owned() })
}

pub(crate) fn check_marker(text: &str) -> Result<(), Damage> {
    let fields: MarkerFields = unseal(text)?;
    match fields.program == PROGRAM {
        true => Ok(()),
        false => Err(Damage(format!("it belongs to program '{}'", fields.program))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::text::format_of;

    fn manifest() -> RunManifest {
        RunManifest {
            run: RunId(0xab),
            spec: PlanSpec {
                board: Board::new(27).unwrap(),
                layout: Layout::Border,
                task_cost: 60_000_000,
            },
            plan: "0123456789abcdef".repeat(4).parse().unwrap(),
            plan_version: 4,
            priority: -2,
            created_unix_ms: 1_700_000_000_000,
            key: None,
        }
    }

    fn end() -> JournalEnd {
        JournalEnd { bytes: 0, lines: 3, head: ChainHash::after(b"line"), fence: 0 }
    }

    const SYMMETRIC: SymmetricCounts = SymmetricCounts { half_turn: 3000, quarter_turn: 64 };

    #[test]
    fn the_texts_are_frozen() {
        let texts = [
            encode(&manifest()),
            encode_state(RunId(0xab), RunState::Complete, &end()),
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
                r#"{"format":1,"program":"queens coordinator","#,
                r#""check":"98b64987eb34b67807ce6a1cba97bb13af761e6246452680b2b59de043cc8526"}"#,
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
        let keyed = RunManifest { key: Some("nightly-1".parse().unwrap()), ..manifest() };
        let text = encode(&keyed);
        assert!(text.contains(r#""created_unix_ms":1700000000000,"key":"nightly-1","check":"#));
        assert_eq!(decode(&text), Ok(keyed));
        for state in [
            RunState::Running,
            RunState::Paused,
            RunState::Cancelled,
            RunState::Complete,
            RunState::Contradicted,
            RunState::Disputed,
        ] {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.name()));
            let text = encode_state(RunId(1), state, &end());
            let saved = decode_state(RunId(1), &text).unwrap();
            assert_eq!((saved.state, saved.lines, saved.head), (state, end().lines, end().head));
            assert!(decode_state(RunId(2), &text).is_err());
        }
        let text = encode_symmetric(RunId(1), SYMMETRIC);
        assert_eq!(decode_symmetric(RunId(1), &text), Ok(SYMMETRIC));
        assert!(decode_symmetric(RunId(2), &text).is_err());
        for recheck in [Recheck::Auto, Recheck::All, Recheck::Millionths(20_000)] {
            let settings = Settings { recheck, priority: -3 };
            let text = encode_settings(RunId(1), settings);
            assert_eq!(decode_settings(RunId(1), &text), Ok(settings));
            assert!(decode_settings(RunId(2), &text).is_err());
        }
        let too_much = Settings { recheck: Recheck::Millionths(1_000_001), priority: 0 };
        let too_much = encode_settings(RunId(1), too_much);
        assert!(decode_settings(RunId(1), &too_much).is_err());
        assert_eq!(decode_term(&encode_term(u64::MAX)), Ok(u64::MAX));
        assert_eq!(check_marker(&marker()), Ok(()));
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
        assert!(error.0.starts_with("unsupported format 12"), "{error}");
        assert_eq!(format_of("{\"format\":7,\"new\":[]}"), Some(7));
        assert_eq!(format_of("no JSON"), None);
    }
}
