//! What reads the spool, as a function that takes any bytes: for fuzzing.

use common::sealed;

use super::line::SpoolLine;

/// One line of the spool: as it is, and with the check sum that these bytes would have. What was
/// read must be written and read again as the same.
pub fn spool_line(bytes: &[u8]) {
    let again = |text: &[u8]| {
        if let Some(line) = SpoolLine::read(text) {
            let mut written = Vec::new();
            line.write(&mut written);
            assert_eq!(written.pop(), Some(b'\n'));
            assert_eq!(SpoolLine::read(&written), Some(line));
        }
    };
    again(bytes);
    again(&sealed::resealed(bytes));
}
