//! See the target of this name in `admit_one`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    admit_one::fuzzing::run("frames", data);
});
