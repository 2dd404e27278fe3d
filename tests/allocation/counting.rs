//! An allocator that counts, for the test targets that measure memory.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    sync::atomic::{AtomicIsize, Ordering},
};

struct Counting;

thread_local! {
    /// Bytes that this thread asked for, freed or not.
    static ASKED: Cell<usize> = const { Cell::new(0) };
    /// Whether this thread is left out of what the process holds.
    static APART: Cell<bool> = const { Cell::new(false) };
}

static HELD: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

fn add(bytes: usize) {
    ASKED.with(|asked| asked.set(asked.get() + bytes));
    if !APART.get() {
        let held = HELD.fetch_add(bytes as isize, Ordering::Relaxed) + bytes as isize;
        MOST.fetch_max(held, Ordering::Relaxed);
    }
}

fn subtract(bytes: usize) {
    if !APART.get() {
        HELD.fetch_sub(bytes as isize, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator as it came; the counts are atomics and thread-local cells that
// neither allocate nor are ever dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        let moved = unsafe { System.realloc(pointer, layout, size) };
        subtract(layout.size());
        moved
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        subtract(layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes that this thread asked for so far, freed or not.
pub fn asked() -> usize {
    ASKED.get()
}

/// Leaves this thread out of what the process holds, from now on. What it shares with others is counted on one side.
pub fn apart() {
    APART.set(true);
}

/// Bytes held now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed).max(0) as usize
}

/// Bytes held now, from which the most is counted anew.
pub fn start() -> usize {
    MOST.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
    held()
}

/// The most bytes held at once since [`start`].
pub fn most() -> usize {
    MOST.load(Ordering::Relaxed).max(0) as usize
}
