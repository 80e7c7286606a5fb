//! Solutions that a rotation of the board maps to themselves, counted by their own enumeration.
