//! Four lanes of 32 bits: NEON on aarch64.

use std::arch::aarch64::*;

use super::states::States;

/// 128-bit vectors. Exists only where the CPU has NEON.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Neon(());

/// Flags as values: a lane is flagged where it is not zero. The comparison is left to whoever
/// needs bits, so that several flags meet in one minimum each and are compared once.
#[derive(Clone, Copy)]
pub(crate) struct Flags(uint32x4_t);

impl Neon {
    /// # Safety
    /// The CPU has NEON.
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Flags {
    /// One bit a lane.
    ///
    /// # Safety
    /// The CPU has NEON.
    #[inline(always)]
    unsafe fn bits(self) -> usize {
        const LANES: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: the caller vouches for NEON; the array has four elements.
        unsafe {
            vaddvq_u32(vandq_u32(
                vtstq_u32(self.0, self.0),
                vld1q_u32(LANES.as_ptr()),
            )) as usize
        }
    }
}

/// For every set of flagged lanes the bytes in the order in which they are to lie: those of the
/// flagged lanes first.
static ORDER: [[u8; 16]; 16] = {
    let mut table = [[0; 16]; 16];
    let mut set = 0;
    while set < table.len() {
        let (mut byte, mut to) = (0, 0);
        while byte < 16 {
            if set >> (byte / 4) & 1 == 1 {
                table[set][to] = byte;
                to += 1;
            }
            byte += 1;
        }
        set += 1;
    }
    table
};

// Every method: the CPU has the instructions, since a `Neon` exists.
impl States for Neon {
    const WIDTH: usize = 4;
    const AHEAD: usize = 2;
    type Vector = uint32x4_t;
    type Mask = Flags;

    #[inline(always)]
    unsafe fn splat(self, value: u32) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { vdupq_n_u32(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u32) -> uint32x4_t {
        // SAFETY: as said above; the caller vouches for four elements.
        unsafe { vld1q_u32(from) }
    }

    #[inline(always)]
    unsafe fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { veorq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn lowest(self, a: uint32x4_t) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { vandq_u32(a, vsubq_u32(vdupq_n_u32(0), a)) }
    }

    #[inline(always)]
    unsafe fn or_shift_up(self, a: uint32x4_t, b: uint32x4_t, by: u32) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { vshlq_u32(vorrq_u32(a, b), vdupq_n_s32(by.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn or_shift_down(self, a: uint32x4_t, b: uint32x4_t, by: u32) -> uint32x4_t {
        // A shift by a negative number goes down.
        // SAFETY: as said above.
        unsafe { vshlq_u32(vorrq_u32(a, b), vdupq_n_s32(-by.cast_signed())) }
    }

    #[inline(always)]
    unsafe fn without(self, a: uint32x4_t, b: uint32x4_t, c: uint32x4_t) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { vbicq_u32(a, vorrq_u32(b, c)) }
    }

    #[inline(always)]
    unsafe fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: as said above.
        unsafe { vandq_u32(a, b) }
    }

    #[inline(always)]
    unsafe fn nonzero(self, a: uint32x4_t) -> Flags {
        Flags(a)
    }

    #[inline(always)]
    unsafe fn both(self, a: Flags, b: Flags) -> Flags {
        // SAFETY: as said above.
        Flags(unsafe { vminq_u32(a.0, b.0) })
    }

    #[inline(always)]
    unsafe fn count(self, mask: Flags) -> usize {
        // SAFETY: as said above.
        unsafe { mask.bits() }.count_ones() as usize
    }

    #[inline(always)]
    unsafe fn append(self, to: *mut u32, a: uint32x4_t, mask: Flags) {
        // SAFETY: as said above; the table has a row for every four bits; the caller vouches for
        // four elements.
        unsafe {
            let order = vld1q_u8(ORDER.as_ptr().add(mask.bits()).cast());
            vst1q_u32(
                to,
                vreinterpretq_u32_u8(vqtbl1q_u8(vreinterpretq_u8_u32(a), order)),
            );
        }
    }
}
