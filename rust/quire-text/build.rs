fn main() {
    // Only the generated header and glue are needed: CMake compiles the C++ side itself.
    cxx_build::bridge("src/lib.rs").std("c++20").compile("quire_text_cxx");
    println!("cargo:rerun-if-changed=src/lib.rs");
}
