//! What stands at the end of every command's `--help`: lines that work as they are typed where a
//! coordinator serves this machine, each with what it does.

pub(super) const QUEENSCTL: &str = "\
Examples:
  queensctl status --watch
      follows the run of this machine's coordinator
  queensctl --join @operator.join runs
      the runs of another machine's, with a join string from a file";

pub(super) const STATUS: &str = "\
Examples:
  queensctl status --watch
      a screen that follows the run that is served first
  queensctl status last --json
      the run created last, for a program";

pub(super) const WAIT: &str = "\
Examples:
  queensctl wait last
      prints the result of the run created last once there is one
  queensctl wait last --json > result.json
      the same for a program; the exit code says how it went";

pub(super) const WORKERS: &str = "\
Examples:
  queensctl workers
      who counts, how fast, and who is silent
  queensctl workers drain rack-7
      stops one in good order, before its machine is needed";

pub(super) const WORKERS_TRUST: &str = "\
Examples:
  queensctl workers trust rack-7
      after a repair: it gets work again";

pub(super) const WORKERS_DRAIN: &str = "\
Examples:
  queensctl workers drain rack-7
      it hands in what it has counted, and ends";

pub(super) const RUNS: &str = "\
Examples:
  queensctl runs
      every run, with the name that other commands ask for
  queensctl runs --json
      one JSON object a line";

pub(super) const DASHBOARD: &str = "\
Examples:
  queensctl dashboard
      the address to open, with a link that lets one browser in";

pub(super) const SUBMIT: &str = "\
Examples:
  queensctl submit --n 20
      starts N = 20 on the workers that there are
  queensctl submit --n 16 --priority 1 --recheck all
      before other runs, everything counted twice";

pub(super) const PAUSE: &str = "\
Examples:
  queensctl pause last
      the run created last, until `queensctl resume last`";

pub(super) const RESUME: &str = "\
Examples:
  queensctl resume last
      goes on with the run created last";

pub(super) const CANCEL: &str = "\
Examples:
  queensctl cancel last
      gives up the run created last";

pub(super) const RETRY: &str = "\
Examples:
  queensctl retry last
      after what made tasks fail was mended";

pub(super) const RECHECK: &str = "\
Examples:
  queensctl recheck last 0.1
      counts a tenth of its tasks a second time
  queensctl recheck last all
      counts every task a second time";

pub(super) const DELETE: &str = "\
Examples:
  queensctl delete last
      the run created last, if it is over";

pub(super) const EXPORT: &str = "\
Examples:
  queensctl export last > records.jsonl
      every accepted count of the run created last";

pub(super) const VERIFY: &str = "\
Examples:
  queensctl verify queens-data
      also while a coordinator writes there
  queensctl verify @store
      a database whose address stands in the file `store`";

pub(super) const COPY: &str = "\
Examples:
  queensctl copy queens-data @store
      into the empty database whose address stands in the file `store`
  queensctl copy @store queens-copy
      and back, into a new directory";

#[cfg(feature = "archive")]
pub(super) const RESTORE: &str = "\
Examples:
  queensctl restore /mnt/archive queens-data
      then start the coordinator on queens-data as before";

pub(super) const CERTIFY: &str = "\
Examples:
  queensctl certify queens-data --out n20.json
      of the run created last; its counts go to n20.json.counts";

pub(super) const AUDIT: &str = "\
Examples:
  queensctl audit n20.json
      its signature and its sums, and 20 of its counts made again
  queensctl audit n20.json --tasks 1000
      more of them, which takes longer";

pub(super) const PLAN: &str = "\
Examples:
  queensctl plan --n 28 --fleet fleet.toml
      with a fleet.toml like this:

  [[machine]]
  name = \"rack\"
  count = 40
  cores = 16
  memory = \"8GiB\"             # what counting may hold
  estimate = \"rack.json\"      # worker estimate --n 28 --json, on one of them
  watts = 250                 # of each; may be left out
  [[machine]]
  name = \"old\"
  count = 10
  cores = 4
  memory = \"2GiB\"
  speed = 0.5                 # of a core; or rate = 2.0, of the machine
                              # (queensctl workers)";

pub(super) const TOKEN: &str = "\
Examples:
  queensctl token create --role worker --name lab --expires 90d
      prints the join string for a lab's machines, this once
  queensctl token revoke lab
      and takes it back";

pub(super) const TOKEN_CREATE: &str = "\
Examples:
  queensctl token create --role worker --name lab --expires 90d
      for a lab's machines, for three months
  queensctl token create --role viewer --name hall
      for a screen in the hall: it sees everything and changes nothing";

pub(super) const TOKEN_LIST: &str = "\
Examples:
  queensctl token list
      names, roles and until when they are good";

pub(super) const TOKEN_REVOKE: &str = "\
Examples:
  queensctl token revoke lab
      whoever uses it is refused from the next call on";

pub(super) const SHOW: &str = "\
Examples:
  queensctl show --n 8 --unique
      the 12 boards of which all others are images
  queensctl show --n 8 --index 1 --svg board.svg
      the first solution, drawn
  queensctl show --check '0 4 7 5 2 6 1 3'
      whether a board is a solution, and which are its images";

pub(super) const PLACE: &str = "\
Examples:
  queensctl place --n 20
      one solution, another one each time
  queensctl place --n 1000000 --seed 1 --summary
      one of a million queens, which is not printed";

pub(super) const LADDER: &str = "\
Examples:
  queensctl ladder --max-n 12 --time-limit 1
      which technique gets how far in a second a board
  queensctl ladder --max-n 10 --bounds
      how many boards each of them visits";

pub(super) const FRAMES: &str = "\
Examples:
  queensctl frames --n 20
      how long the lists are that a frame is counted with
  queensctl frames --n 8 --a 0b0101 --c 0b1010
      one frame, opened";
