//! Runs every `console` block of the guides and of `tests/cmd` and compares its output. Those of the README need a
//! running system, so `documents.rs` runs them.

#[test]
fn commands_print_what_the_documents_say() {
    // Paths in the documents are relative to the root of the repository.
    std::env::set_current_dir(mco_testkit::repository_root()).expect("the repository is there");
    trycmd::TestCases::new()
        .case("docs/*.md")
        .case("crates/mco/tests/cmd/*.md");
}
