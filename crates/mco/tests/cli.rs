//! Runs every `console` block of `tests/cmd` and compares its output. `documents.rs` runs those of the guides and of the
//! README, which have no markers for tests.

#[test]
fn commands_print_what_the_documents_say() {
    // Paths in the documents are relative to the root of the repository.
    std::env::set_current_dir(mco_testkit::repository_root()).expect("the repository is there");
    trycmd::TestCases::new().case("crates/mco/tests/cmd/*.md");
}
