// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/cause.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernel/base/json.hpp"

namespace souk {
namespace {

using enum CauseCode;

constexpr auto words = std::to_array<CauseWords>({
    {none, "none", "", "no cause"},

    {holds_io_uring, "holds_io_uring", "cannot move: {process} has an io_uring open (file {file})",
     "CRIU dumps no io_uring; programs that use it mostly have an option without it"},
    {holds_userfaultfd, "holds_userfaultfd",
     "cannot move: {process} has a userfaultfd open (file {file})", "CRIU dumps none"},
    {holds_perf_event, "holds_perf_event",
     "cannot move: {process} has a perf event open (file {file})",
     "CRIU dumps none; it can move when perf has ended"},
    {holds_bpf, "holds_bpf", "cannot move: {process} has a BPF object open (file {file})",
     "CRIU dumps no BPF programs, maps and links"},
    {holds_virtual_machine, "holds_virtual_machine",
     "cannot move: {process} has a virtual machine open (file {file})",
     "CRIU dumps no KVM machine; without KVM (emulated) it moves"},
    {holds_fuse_device, "holds_fuse_device",
     "cannot move: {process} has a FUSE server's device open (file {file})",
     "CRIU dumps no server of a file system"},
    {holds_secret_memory, "holds_secret_memory",
     "cannot move: {process} has secret memory ({file}); it can move when that is closed and "
     "unmapped",
     "the kernel lets nobody read it (memfd_secret)"},
    {holds_gpu, "holds_gpu", "cannot move: {process} has a GPU open (file {file})",
     "the state of a GPU is not dumped"},
    {holds_message_queue, "holds_message_queue",
     "cannot move: {process} has a POSIX message queue open (file {file})", "CRIU dumps none"},
    {holds_connection, "holds_connection",
     "cannot move: {process} is connected to {peer} (file {file}), and --tcp=refuse keeps that",
     "srun --tcp=close lets a move close it; with --net=own it goes along"},
    {is_traced, "is_traced", "cannot move: {process} is being traced",
     "a debugger or strace stops a dump; it can move when that has ended"},
    {first_thread_ended, "first_thread_ended",
     "cannot move: the first thread of {process} has ended, and others go on",
     "CRIU does not take such a process"},
    {left_process_tree, "left_process_tree",
     "cannot move: {process} has left the job's process tree and would be left behind; end it or "
     "start it in the foreground",
     "a process whose parent is not of the job any more"},
    {session_lost, "session_lost",
     "cannot move: {process} is in a session whose leader has ended, and its parent is not the "
     "job's first process",
     "such a session cannot be made again"},

    {lacks_sys_resource, "lacks_sys_resource",
     "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root cannot be moved, frozen or "
     "checkpointed on this node",
     "give agentd of that node the capability (a container may lack it)"},
    {deleted_file_too_large, "deleted_file_too_large",
     "cannot be dumped: a file that it has deleted and still has open is too large to go along",
     "`deleted_mb` of agentd.conf says how large; or the job closes it"},
    {socket_to_outside, "socket_to_outside",
     "cannot be dumped: a socket of it is connected to a process that is not of the job",
     "it can move when that connection is closed"},
    {connection_open, "connection_open", "cannot be dumped: it has a TCP connection open",
     "srun --tcp=close lets a move close it; with --net=own it goes along"},
    {file_unsupported, "file_unsupported",
     "cannot be dumped: it has a file of a kind open that CRIU does not know",
     "marketctl job ID --story --verbose says which"},
    {file_mount_unknown, "file_mount_unknown",
     "cannot be dumped: it has a file open whose file system is not mounted for it any more",
     "a file of a directory that was unmounted, or of another mount namespace"},
    {namespace_nested, "namespace_nested",
     "cannot be dumped: a process of it has a namespace of its own inside of the capsule",
     "containers within a job do not move"},
    {seccomp_unsupported, "seccomp_unsupported",
     "cannot be dumped: the kernel does not let CRIU look at its system call filter",
     "the kernel of that node lacks what CRIU needs"},
    {did_not_stop, "did_not_stop", "cannot be dumped: a process of it did not stop in time",
     "mostly it waits for a disk or a file server that does not answer"},
    {image_disk_full, "image_disk_full", "no space left in the image directory",
     "make room on that node, or name another directory in agentd.conf"},
    {criu_cannot_dump, "criu_cannot_dump", "CRIU cannot dump it",
     "CRIU's own words: marketctl job ID --story --verbose"},
    {criu_cannot_restore, "criu_cannot_restore", "CRIU cannot restore it",
     "CRIU's own words: marketctl job ID --story --verbose. After \"it could not thaw:\" the job "
     "was "
     "not frozen to disk, and goes on or stands in memory"},
    {criu_ended, "criu_ended", "CRIU ended without an answer",
     "CRIU of that node was killed or has crashed"},
    {criu_silent, "criu_silent", "CRIU did not get ready within {seconds} s",
     "that node is overloaded, or its CRIU does not work (souk doctor)"},

    {capsule_failed, "capsule_failed", "{text}", "that node could not make the job's capsule"},
    {capsule_silent, "capsule_silent", "its capsule does not answer",
     "PID 1 of the job's capsule hangs or has ended"},
    {capsule_ended, "capsule_ended", "its capsule ended unexpectedly",
     "all of the job was killed from outside (the kernel's, an operator's or a control group's "
     "doing)"},
    {image_has_no_room, "image_has_no_room", "{text}",
     "that node has no room for the image of the job, on its disk or in its memory"},
    {image_refused, "image_refused", "its image is refused: {text}",
     "the image is damaged, or of another job, kernel or machine"},
    {image_incomplete, "image_incomplete", "its image is incomplete",
     "the machine went down while the image was written"},
    {file_changed, "file_changed", "{text}",
     "a file that the job has open is another one at its destination"},
    {dump_failed, "dump_failed", "{text}", "the job could not be dumped; it goes on where it is"},
    {stop_failed, "stop_failed", "{text}", "the job could not be stopped where it is"},
    {start_failed, "start_failed", "{text}", "the job could not be started on that node"},
    {restore_failed, "restore_failed", "{text}",
     "the job could not be restored; it goes on from where it was"},
    {send_failed, "send_failed", "{text}", "its image could not be sent"},
    {receive_failed, "receive_failed", "{text}", "its image could not be received"},
    {memory_lost, "memory_lost", "{text}",
     "what is missing of the job's memory did not come; it goes on from where it was"},
    {checkpoint_failed, "checkpoint_failed", "{text}", "a checkpoint could not be made or sent"},
    {agentd_ended, "agentd_ended", "{text}",
     "the agentd of that node ended while it was about that"},
    {lease_over, "lease_over", "{text}",
     "the job stands still, as its home was not heard from for its lease"},
    {memory_limit, "memory_limit", "{text}",
     "the kernel killed a process of it at the job's limit of memory; ask for more (srun -m)"},
    {program_failed, "program_failed", "{text}", "the program could not be executed there"},
    {too_many_jobs, "too_many_jobs", "the node holds too many jobs",
     "that node has as many jobs as its agentd can hold"},
    {being_removed, "being_removed", "what is left of its last start there is being removed",
     "it lasts a moment"},
    {off_market, "off_market", "{text}", "the owner of that node does not take jobs now"},
    {user_refused, "user_refused", "{text}",
     "the owner of that node takes no jobs of this user or group (guest_uid_min and guest_groups "
     "of agentd.conf)"},
    {ticket_refused, "ticket_refused", "{text}",
     "that node wants the market's ticket, and what was shown is none for that"},
    {owner_killed, "owner_killed",
     "it could not leave, and the owner of this node has such jobs killed after {seconds} s "
     "({text})",
     "`immovable` of that node's agentd.conf; srun --must-migrate refuses such a job at launch"},

    {cancelled, "cancelled", "cancelled", "its user or an operator cancelled it"},
    {must_migrate, "must_migrate", "refused, as it must be able to move (--must-migrate): {text}",
     "srun --check PROGRAM says it before"},
    {killed, "killed", "killed on {node}[: {text}]", "its capsule was killed there"},
    {node_unreachable, "node_unreachable",
     "node {node} cannot be reached from its home node {home}",
     "the network between the two, or the address that agentd.conf of {node} names"},
    {node_not_heard, "node_not_heard", "{text}",
     "the job's node was not heard from for longer than the job's lease"},
    {given_up_node, "given_up_node", "node {node} is lost", "marketctl node lost"},
    {job_lost, "job_lost", "node {node} has lost it", "its node knows nothing of it any more"},
    {image_lost, "image_lost", "its image on {node} is lost", "its node has no image of it"},
    {home_restarted, "home_restarted", "the home node restarted during the move",
     "the move is undone"},
    {not_ready_in_time, "not_ready_in_time", "a node did not get ready in time",
     "one of the two nodes of the move is overloaded or hangs"},
    {transfer_too_slow, "transfer_too_slow", "the transfer took too long",
     "the network between the two nodes is too slow for the job's memory"},
    {source_not_held, "source_not_held", "the source was not held", "the move is undone"},
    {overtaken, "overtaken", "{text}", "the job was not any more as the order took it to be"},
    {no_checkpoint, "no_checkpoint", "no checkpoint: {text}",
     "the newest checkpoint failed; the one before stays"},
    {goes_back, "goes_back", "{text}", "the job goes on from its checkpoint, or begins anew"},
    {job_before_failed, "job_before_failed", "job {job} has not ended as it should",
     "srun --after JOB:ok and that one has failed, or JOB:notok and it has not"},
    {home_forgot, "home_forgot", "{text}", "its home node does not know it any more"},
    {program_lacks, "program_lacks", "{node} cannot execute its program: {text}",
     "it is tried on other nodes"},
    {not_carried_out, "not_carried_out", "{text}",
     "the market's order was not carried out in time, or cannot be"},
    {file_not_opened, "file_not_opened", "{text}",
     "the job has that file open, or watches it, and it cannot be opened at its destination: it is "
     "missing there, or its user may not open it. It thaws when it is there"},
    {other_files, "other_files",
     "the shared directories of the job's home {home} are other file systems here",
     "a job of --files=auto in a shared directory (shared_files) goes to other nodes"},
    {owner_uses, "owner_uses", "{text}",
     "the owner of that node uses it, or has paused its guests: the job is stopped in memory and "
     "costs nothing; it goes on when he is away, or elsewhere when he stays"},
    {path_not_offered, "path_not_offered",
     "this node does not offer {path}, which the job asks for (srun --local-path)",
     "`local_paths` of that node's agentd.conf; the job is tried on other nodes"},
    {holds_node_file, "holds_node_file",
     "cannot move: {process} has a file of this node's {path} open (file {file})",
     "/tmp is each node's own (`files_tmp` of the home's agentd.conf); it can move when the file "
     "is closed"},
    {components_taken_back, "components_taken_back",
     "component {component} could not start: the start of the others is taken back",
     "a job of several components starts with all of them, or not yet; it is tried again"},
    {components_late, "components_late", "not all components were ready within {seconds} s",
     "the start of a job of several components is taken back, and tried again"},
    {components_not_started, "components_not_started",
     "its components could not start together in {count} tries, the last time since {text}",
     "a job of several components is ended then; `marketctl job ID --story` has each try"},
    {component_ended, "component_ended", "component {component} of the job has ended: {text}",
     "a job of several components ends as one: the others are ended, too"},
    {components_not_held, "components_not_held", "{text}",
     "a market or a node of an older version does not hold the components of a job until all are "
     "ready: none of them is started"},
    {image_stays, "image_stays", "its image stays on {node} for now: {text}",
     "the owner of that node wants it gone; its home has no room for it, or does not reach the "
     "node, and tries again after up to 5 min"},

    {not_allowed, "not_allowed", "{text}",
     "whoever asks may not: it is for root, an operator, the owner of the node or the job's user"},
    {not_found, "not_found", "{text}",
     "nothing has that name or number: no job, node, user, account, token"},
    {invalid, "invalid", "{text}",
     "the command line, an argument or a file is not as it has to be; exit status 2 where no "
     "daemon was asked"},
    {not_possible, "not_possible", "{text}",
     "it is known, and as things are now it cannot be done"},
    {too_many, "too_many", "{text}", "a limit is reached; it may be asked again later"},
    {away, "away", "{text}", "the daemon or the market is not reached, or does not answer"},
    {unsound, "unsound", "{text}",
     "a database, its copy or the ledger is damaged, incomplete or older than it has to be"},

    {holds_mptcp, "holds_mptcp",
     "cannot move: {process} has an MPTCP socket open (file {file}); it can move with plain TCP",
     "CRIU dumps no MPTCP; a program of Go uses TCP with GODEBUG=multipathtcp=0 in its "
     "environment"},
    {holds_packet_pipe, "holds_packet_pipe",
     "cannot move: {process} has a pipe of packets open (file {file}); it can move with one that "
     "is made without O_DIRECT",
     "CRIU does not dump where the packets end that wait in such a pipe"},
    {holds_unsupported, "holds_unsupported",
     "cannot move: {process} has {kind} open (file {file}); it can move when that is closed",
     "CRIU dumps nothing of that kind"},
    {dump_refused, "dump_refused", "{text}",
     "what it has shows only when it is looked at closely, while it stands for a dump"},
    {holds_server_lock, "holds_server_lock",
     "cannot move: {process} holds a lock of a file on a server (file {file})",
     "the server would give it to others while nothing of the job runs; it can move when the lock "
     "is let go, and be stopped in memory meanwhile"},
    {reserves_too_much, "reserves_too_much",
     "cannot move: {process} reserves {text} TB of addresses, more than CRIU can restore",
     "programs built with the thread sanitizer do; it can be stopped in memory"},
    {time_limit, "time_limit", "its time limit of {limit} is over",
     "srun --time: it has run that long, without waits and freezes; srun -J ID --time MORE gives a "
     "job that still runs more"},
    {cpu_limit, "cpu_limit", "its {limit} of CPU time are used up",
     "srun --cpu-time: its processes have used as much; srun -J ID --cpu-time MORE gives more"},
    {tried_again, "tried_again", "{text}; retry {try} of {most} comes in {seconds} s",
     "srun --retries: the job failed, and is run again after a pause"},
    {tries_over, "tries_over", "it has failed in each of its {most} retries: {text}",
     "srun --retries: it is not run again"},
    {holds_resource, "holds_resource", "it has {text} of this node, which cannot go along",
     "srun --resource: a device that it was given is of its node alone; it ends there, or stands "
     "there when its owner takes the node back"},
    {resource_short, "resource_short", "not so much of {text} is free on this node",
     "srun --resource: the node has fewer than the market thought, for example since its "
     "configuration changed; the market tries elsewhere, and there again later"},
    {resource_untold, "resource_untold",
     "{text} is a device here, and the job has begun: nothing can tell it which one it has",
     "srun --resource: a job gets devices when it begins; one that moves or thaws goes to a node "
     "where what it asks for is a count"},
    {place_over, "place_over", "its place of {limit} is over",
     "srun --for: a place that is only held (--allocate), and a job with named resources that were "
     "sold ahead, end when the time is over that was sold"},
});

constexpr bool in_order() {
    for (size_t i = 0; i < words.size(); ++i)
        if (words[i].code != static_cast<CauseCode>(i)) return false;
    return true;
}
static_assert(in_order() && words.back().code == place_over, "a code has no line");

// Returns the text with the values in their places; nullopt: one is not known.
std::optional<std::string> filled(std::string_view text, const FigureValue& value) {
    std::string out;
    while (!text.empty()) {
        const size_t open = text.find('{');
        out += text.substr(0, open);
        if (open == std::string_view::npos) break;
        const size_t close = text.find('}', open);
        const auto v = value(text.substr(open + 1, close - open - 1));
        if (!v) return {};
        out += *v;
        text.remove_prefix(close + 1);
    }
    return out;
}

}  // namespace

std::span<const CauseWords> cause_table() { return words; }

std::string_view to_string(CauseCode code) {
    const auto i = static_cast<size_t>(code);
    return i < words.size() ? words[i].name : "unknown";
}

CauseCode cause_named(std::string_view name) {
    const auto* const found = std::find_if(words.begin(), words.end(),
                                           [&](const CauseWords& w) { return w.name == name; });
    return found == words.end() ? none : found->code;
}

std::string fill_words(std::string_view pattern, const FigureValue& value) {
    std::string out;
    while (true) {
        const size_t open = std::min(pattern.find('['), pattern.size());
        out += filled(pattern.substr(0, open), value).value_or("");
        pattern.remove_prefix(open);
        if (pattern.empty()) return out;
        const size_t close = pattern.find(']');
        out += filled(pattern.substr(1, close - 1), value).value_or("");
        pattern.remove_prefix(close + 1);
    }
}

Cause Cause::or_code(CauseCode c) const {
    Cause all = *this;
    if (!empty() && code == CauseCode::none) all.code = c;
    return all;
}

Cause Cause::within(std::string_view before, std::string_view after) const {
    std::string text(before);
    text += *this;
    text += after;
    return {code, std::move(text)};
}

Cause because(CauseCode code, CauseFigures figures) {
    const auto value = [&](std::string_view name) -> std::optional<std::string> {
        for (const auto& [figure, text] : figures)
            if (figure == name && !text.empty()) return text;
        return {};
    };
    return {code, fill_words(words[static_cast<size_t>(code)].text, value)};
}

tl::unexpected<Error> fail_because(CauseCode code, CauseFigures figures, std::string detail) {
    return tl::unexpected(Error{0, because(code, figures), code, std::move(detail)});
}

tl::unexpected<Error> fail(CauseCode code, std::string message) {
    return tl::unexpected(Error{0, std::move(message), code});
}

Error as_asked(Error error) {
    return error.code == 0 ? caused_by(invalid, std::move(error)) : std::move(error);
}

std::string_view code_of(const Error& error) {
    if (error.cause != none) return to_string(error.cause);
    const char* const name = error.code > 0 ? ::strerrorname_np(error.code) : nullptr;
    return name ? name : "failed";
}

void write_cause(JsonWriter& j, std::string_view name, const Cause& cause) {
    if (cause.empty()) return;
    j.field(name, cause);
    if (cause.code != CauseCode::none) j.field(std::string(name) + "_code", to_string(cause.code));
}

Error caused_by(CauseCode code, Error error) {
    if (error.cause == CauseCode::none) error.cause = code;
    return error;
}

}  // namespace souk
