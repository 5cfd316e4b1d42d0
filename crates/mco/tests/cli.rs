//! Every `console` block of the README and of `tests/cmd` is run and must print what it says.

#[test]
fn commands_print_what_the_documents_say() {
    // The documents speak from the root of the repository.
    std::env::set_current_dir(mco_testkit::repository_root()).expect("the repository is there");
    trycmd::TestCases::new()
        .case("README.md")
        .case("crates/mco/tests/cmd/*.md");
}
