//! Division of a text into blocks, rows and words, by lines and by brackets.

/// Words of a line, or of the innermost brackets.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// The number of its last line in the text, from 1.
    pub(super) line: usize,
    pub(super) words: Vec<String>,
    pub(super) bracketed: bool,
}

/// Rows between empty lines, or in the same pair of brackets.
pub(super) type Block = Vec<Row>;

/// Divides a text; `None` if brackets have no partner.
///
/// Commas, semicolons and quotes separate words; `|` is a word.
pub(super) fn blocks(text: &str) -> Option<Vec<Block>> {
    let mut layout = Layout::default();
    for (line, text) in (1..).zip(text.lines()) {
        layout.row.line = line;
        let rows_before = layout.block.len();
        for c in text.chars() {
            match c {
                '[' | '(' | '{' => layout.open(),
                ']' | ')' | '}' => layout.close()?,
                '|' => {
                    layout.end_word();
                    layout.row.words.push("|".to_owned());
                }
                c if c.is_whitespace() || ",;\"\'`".contains(c) => layout.end_word(),
                c => layout.word.push(c),
            }
        }
        layout.end_word();
        if layout.open.is_empty() {
            layout.end_row();
            // Several rows in brackets on one line are a board.
            if text.trim().is_empty() || layout.block.len() > rows_before + 1 {
                layout.end_block();
            }
        }
    }
    layout.end_block();
    layout.open.is_empty().then_some(layout.blocks)
}

#[derive(Default)]
struct Layout {
    blocks: Vec<Block>,
    block: Block,
    row: Row,
    word: String,
    /// Open brackets: whether each contains others.
    open: Vec<bool>,
}

impl Layout {
    fn end_word(&mut self) {
        if !self.word.is_empty() {
            self.row.words.push(std::mem::take(&mut self.word));
        }
    }

    fn end_row(&mut self) {
        self.end_word();
        if !self.row.words.is_empty() {
            let line = self.row.line;
            self.block.push(std::mem::replace(&mut self.row, Row { line, ..Row::default() }));
        }
    }

    fn end_block(&mut self) {
        if !self.block.is_empty() {
            self.blocks.push(std::mem::take(&mut self.block));
        }
    }

    fn open(&mut self) {
        self.end_row();
        if let Some(outer) = self.open.last_mut() {
            *outer = true;
        }
        self.open.push(false);
    }

    fn close(&mut self) -> Option<()> {
        self.row.bracketed = true;
        self.end_row();
        self.row.bracketed = false;
        if self.open.pop()? {
            self.end_block();
        }
        Some(())
    }
}
