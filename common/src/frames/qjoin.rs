//! QJoin: half boards from pairs of quarter boards that fit.

/// Keys of half boards, in a buffer that outlives them.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    buffer: Vec<u64>,
    len: usize,
    /// Quarter boards that a middle queen allows.
    allowed: Vec<u64>,
}

impl Keys {
    /// No keys, and room for `room` of them.
    pub(crate) fn clear(&mut self, room: usize) {
        self.len = 0;
        if self.buffer.len() < room {
            // Freed first, so that both are never held; zeroed pages cost memory only when written.
            self.buffer = Vec::new();
            self.buffer = vec![0; room];
        }
    }

    /// All keys.
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.buffer[..self.len]
    }

    /// Adds `p | q` for every p and q of the lists that attack no common diagonal.
    pub(crate) fn join(&mut self, left: &[u64], right: &[u64]) {
        let (outer, inner) = if left.len() < right.len() {
            (left, right)
        } else {
            (right, left)
        };
        for &p in outer {
            let room = &mut self.buffer[self.len..self.len + inner.len()];
            let mut fitting = 0;
            for &q in inner {
                // Written in any case, kept if it fits: no branch to predict.
                room[fitting] = p | q;
                fitting += usize::from(p & q == 0);
            }
            self.len += fitting;
        }
    }

    /// Adds `p | q | queen` for every p and q of the lists that attack no common diagonal, neither
    /// with each other nor with the middle queen.
    pub(crate) fn join_beside(&mut self, queen: u64, left: &[u64], right: &[u64]) {
        self.allowed.clear();
        let allowed = left.iter().filter(|&&p| p & queen == 0);
        self.allowed.extend(allowed.map(|p| p | queen));
        let allowed = std::mem::take(&mut self.allowed);
        self.join(&allowed, right);
        self.allowed = allowed;
    }
}
