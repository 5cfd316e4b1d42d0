//! Every `console` block of the guides and of `tests/cmd` is run and must print what it says. Those of the README need a
//! running system, so `documents.rs` runs them.

#[test]
fn commands_print_what_the_documents_say() {
    // The documents speak from the root of the repository.
    std::env::set_current_dir(mco_testkit::repository_root()).expect("the repository is there");
    trycmd::TestCases::new()
        .case("docs/*.md")
        .case("crates/mco/tests/cmd/*.md");
}
