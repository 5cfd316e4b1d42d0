# Which scenarios a profile runs, in their order. A scenario is a function in one of the files beside this one.
# shellcheck shell=bash

profile_scenarios() { # PROFILE
    local start=(
        installs_as_documented
        nodes_are_adopted
        it_can_be_applied_again
    )
    local quick=(
        a_file_reaches_all_workers_with_drain_and_reboot
        kernel_arguments_are_set_by_a_daemon_in_a_pod
        the_only_control_plane_node_is_updated_without_a_drain
        drift_is_reported_and_healed_by_hand
        the_machines_tools_run_from_the_daemons_pod
        the_components_are_quiet
    )
    local more=(
        mco_is_upgraded_during_a_rollout
        keys_units_and_a_kubelet_drop_in_are_applied
        a_custom_pool_takes_a_node_over
        a_pause_holds_the_rollout
        an_administrators_cordon_stays
        an_administrator_drains_the_other_node
        a_budget_that_allows_nothing_holds_the_drain
        the_leader_is_killed_during_a_drain
        the_api_server_restarts_during_a_rollout
        a_node_is_deleted_during_a_rollout
        a_node_does_not_come_back_for_a_while
    )
    local ha=(
        a_file_reaches_all_workers_with_drain_and_reboot
        the_control_plane_is_updated_one_node_at_a_time
        the_leader_is_killed_during_a_drain
        mco_is_upgraded_during_a_rollout
    )
    local adoption=(
        an_installation_changes_no_byte_and_no_node
        a_guarded_path_is_refused_with_its_reason
        the_preview_names_foreign_files_and_changes_nothing
        an_adopted_node_gets_what_its_objects_say
        the_formerly_documented_way_is_harmless
        a_released_node_is_as_before
        a_new_node_is_adopted_where_its_pool_allows_it
        an_uninstall_leaves_no_byte_on_released_nodes
        the_page_about_kubeadm_is_right
    )
    local k3s=(
        an_installation_changes_no_byte_and_no_node
        a_guarded_path_is_refused_with_its_reason
        the_preview_names_foreign_files_and_changes_nothing
        an_adopted_node_gets_what_its_objects_say
        a_released_node_is_as_before
        an_uninstall_leaves_no_byte_on_released_nodes
    )
    local guard=(a_config_that_breaks_the_kubelet_is_reverted_on_its_canary a_config_that_cuts_the_network_is_reverted_on_its_canary)
    local build=(
        an_image_build_for_nodes_without_images_is_refused
        an_image_is_built_and_booted
        a_change_of_files_builds_nothing
        another_base_image_is_built
        the_former_config_uses_its_image_again
        a_bad_containerfile_fails_without_a_job
        the_right_image_is_built_though_everything_is_killed
        a_deleted_machineosconfig_leaves_nothing
    )
    case $1 in
        quick) printf '%s\n' "${start[@]}" "${quick[@]}" uninstalls_with_a_dead_node ;;
        full) printf '%s\n' "${start[@]}" "${quick[@]}" "${more[@]}" uninstalls_with_a_dead_node ;;
        ha) printf '%s\n' "${start[@]}" "${ha[@]}" uninstalls_with_a_dead_node ;;
        guard) printf '%s\n' "${start[@]}" "${guard[@]}" ;;
        adoption) printf '%s\n' "${adoption[@]}" ;;
        k3s) printf '%s\n' "${k3s[@]}" ;;
        build) printf '%s\n' a_registry_and_a_builder_image_are_there installs_as_documented nodes_are_adopted "${build[@]}" ;;
        *) fail "unknown profile $1 (expected quick, full, ha, guard, adoption, k3s or build)" ;;
    esac
}
