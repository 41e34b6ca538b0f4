// SPDX-License-Identifier: GPL-2.0-or-later
// Cause: why something that a node was to do with a job failed, or what keeps a job where it is: a
// text for people, with a code of a table (docs/reasons.md has it). It goes from where it happens
// (a process of the job, CRIU, an agentd) to the market and into all that is told of the job. To
// whoever only shows it, it is a text.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kernel/base/result.hpp"

namespace souk {

// Stored and sent: a code is never renumbered. What a code means stands in its line of the table.
enum class CauseCode : uint16_t {
    none = 0,  // no cause, or one that no code has
    // what a process of the job has
    holds_io_uring,
    holds_userfaultfd,
    holds_perf_event,
    holds_bpf,
    holds_virtual_machine,
    holds_fuse_device,
    holds_secret_memory,
    holds_gpu,
    holds_message_queue,
    holds_connection,
    is_traced,
    first_thread_ended,
    left_process_tree,
    session_lost,
    // what a dump refused
    lacks_sys_resource,
    deleted_file_too_large,
    socket_to_outside,
    connection_open,
    file_unsupported,
    file_mount_unknown,
    namespace_nested,
    seccomp_unsupported,
    did_not_stop,
    image_disk_full,
    criu_cannot_dump,
    criu_cannot_restore,
    criu_ended,
    criu_silent,
    // the job's node
    capsule_failed,
    capsule_silent,
    capsule_ended,
    image_has_no_room,
    image_refused,
    image_incomplete,
    file_changed,
    dump_failed,
    stop_failed,
    start_failed,
    restore_failed,
    send_failed,
    receive_failed,
    memory_lost,
    checkpoint_failed,
    agentd_ended,
    lease_over,
    memory_limit,
    program_failed,
    too_many_jobs,
    being_removed,
    off_market,
    user_refused,
    ticket_refused,
    owner_killed,
    // the job's home
    cancelled,
    must_migrate,
    killed,
    node_unreachable,
    node_not_heard,
    given_up_node,
    job_lost,
    image_lost,
    home_restarted,
    not_ready_in_time,
    transfer_too_slow,
    source_not_held,
    overtaken,
    no_checkpoint,
    goes_back,
    job_before_failed,
    home_forgot,
    program_lacks,
    not_carried_out,
    file_not_opened,
    other_files,
    owner_uses,
    path_not_offered,
    holds_node_file,
    // jobs of several components, said by their home
    components_taken_back,
    components_late,
    components_not_started,
    component_ended,
    components_not_held,
    // frozen on a node whose owner wants it gone, said by its home
    image_stays,
    // what was asked of a daemon or a tool and is refused
    not_allowed,
    not_found,
    invalid,
    not_possible,
    too_many,
    away,
    unsound,
    // what a process of the job has, once more
    holds_mptcp,
    holds_packet_pipe,
    holds_unsupported,
    dump_refused,
    holds_server_lock,
    reserves_too_much,
    // its home ends it, or runs it again
    time_limit,
    cpu_limit,
    tried_again,
    tries_over,
    holds_resource,
    resource_short,
    resource_untold,
    place_over,
};

struct CauseWords {
    CauseCode code;
    std::string_view name;
    std::string_view text;   // {figure} stands for its value; {text}: words of its own
    std::string_view means;  // for docs/reasons.md: when it is so, and what helps
};
std::span<const CauseWords> cause_table();
// "unknown" of a code that this version does not know, "none" of none.
std::string_view to_string(CauseCode code);
// Returns `none` for a name that this version does not know.
CauseCode cause_named(std::string_view name);

// A pattern with the values in their places: {figure} stands for its value, and what stands in []
// is left out when a figure in it has none.
using FigureValue = std::function<std::optional<std::string>(std::string_view figure)>;
std::string fill_words(std::string_view pattern, const FigureValue& value);

struct Cause : std::string {
    CauseCode code = CauseCode::none;

    Cause() = default;
    template <std::same_as<std::string> T>
    Cause(T text) : std::string(std::move(text)) {}  // NOLINT: a text is a cause
    Cause(const char* text) : std::string(text) {}   // NOLINT
    Cause(const Error& error) : std::string(error.message), code(error.cause) {}  // NOLINT
    Cause(CauseCode c, std::string text) : std::string(std::move(text)), code(c) {}

    void clear() {
        std::string::clear();
        code = CauseCode::none;
    }
    // Returns the same cause with that code, if it has a text and no code yet.
    Cause or_code(CauseCode c) const;
    // Returns the same cause with other words around it.
    Cause within(std::string_view before, std::string_view after = {}) const;

    friend bool operator==(const Cause& a, const Cause& b) {
        return a.code == b.code && a.compare(b) == 0;
    }
    template <std::same_as<std::string> T>
    friend bool operator==(const Cause& a, const T& text) {
        return a.compare(text) == 0;
    }
    friend bool operator==(const Cause& a, const char* text) { return a.compare(text) == 0; }
};

// A cause with what the program that failed (CRIU) said of it itself: for who asks for it.
struct Trouble : Cause {
    std::string detail;

    using Cause::Cause;
    Trouble() = default;
    Trouble(Cause cause) : Cause(std::move(cause)) {}                    // NOLINT
    Trouble(const Error& error) : Cause(error), detail(error.detail) {}  // NOLINT
    Trouble(Cause cause, std::string words) : Cause(std::move(cause)), detail(std::move(words)) {}
    void clear() {
        Cause::clear();
        detail.clear();
    }
    Trouble or_code(CauseCode c) const { return {Cause::or_code(c), detail}; }
    Trouble within(std::string_view before, std::string_view after = {}) const {
        return {Cause::within(before, after), detail};
    }
    friend bool operator==(const Trouble& a, const char* text) {
        return static_cast<const Cause&>(a) == text;
    }
    friend bool operator==(const Trouble& a, const Trouble& b) {
        return static_cast<const Cause&>(a) == static_cast<const Cause&>(b) && a.detail == b.detail;
    }
};

class JsonWriter;
// Writes into an open object NAME with the text of the cause and, where the cause has a code,
// NAME_code. Writes nothing if there is no cause.
void write_cause(JsonWriter& j, std::string_view name, const Cause& cause);

using CauseFigures = std::initializer_list<std::pair<std::string_view, std::string>>;
// Makes a cause in the words of the table.
Cause because(CauseCode code, CauseFigures figures = {});
// Makes an error with that cause; `detail` is what a failed program said itself.
tl::unexpected<Error> fail_because(CauseCode code, CauseFigures figures = {},
                                   std::string detail = {});
// An error of our own making with that code, which says itself what is wrong.
tl::unexpected<Error> fail(CauseCode code, std::string message);
// The code of an error for programs: that of its cause, else the name of its errno ("EACCES"), else
// "failed".
std::string_view code_of(const Error& error);
// The answer to a question: one that has neither code nor errno is a mistake in what was asked.
Error as_asked(Error error);
// The error with that code, if it has none.
Error caused_by(CauseCode code, Error error);

}  // namespace souk
