//! Vectors of search states: what method `rows` needs from an instruction set.

/// The vector operations of one instruction set on lanes of 32 bits.
///
/// # Safety
/// Every method may use the instruction set that the type stands for: a value must exist only where
/// the CPU has it. `load` and `append` touch `WIDTH` elements from the pointer on.
pub(crate) trait States: Copy {
    /// Lanes in a vector.
    const WIDTH: usize;
    /// Rows looked at beyond the one a child is made for, 1 to 3: a child that leaves one of them
    /// without a free square is dropped. Two take 10 % of the placements away, three 18 %, and
    /// each costs a few instructions: worth it where one instruction serves many lanes.
    const AHEAD: usize;
    /// A vector.
    type Vector: Copy;
    /// One flag a lane.
    type Mask: Copy;

    /// Every lane `value`.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn splat(self, value: u32) -> Self::Vector;
    /// The next lanes.
    ///
    /// # Safety
    /// As for the trait; `from` is readable for the whole vector.
    unsafe fn load(self, from: *const u32) -> Self::Vector;
    /// The operation of this name in every lane.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The lowest set bit of every lane.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn lowest(self, a: Self::Vector) -> Self::Vector;
    /// `(a | b) << by` in every lane, bits beyond the lane dropped.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn or_shift_up(self, a: Self::Vector, b: Self::Vector, by: u32) -> Self::Vector;
    /// `(a | b) >> by` in every lane.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn or_shift_down(self, a: Self::Vector, b: Self::Vector, by: u32) -> Self::Vector;
    /// `a & !(b | c)`.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn without(self, a: Self::Vector, b: Self::Vector, c: Self::Vector) -> Self::Vector;
    /// The operation of this name in every lane.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Lanes that are not zero.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn nonzero(self, a: Self::Vector) -> Self::Mask;
    /// Lanes in both.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn both(self, a: Self::Mask, b: Self::Mask) -> Self::Mask;
    /// How many lanes are flagged.
    ///
    /// # Safety
    /// As for the trait.
    unsafe fn count(self, mask: Self::Mask) -> usize;
    /// Writes the flagged lanes of `a` next to each other, then whatever fills the vector.
    ///
    /// # Safety
    /// As for the trait; `to` is writable for the whole vector.
    unsafe fn append(self, to: *mut u32, a: Self::Vector, mask: Self::Mask);
}
