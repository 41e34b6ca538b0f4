// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/inspect/inspector.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "agentd/inspect/names.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/page_sink.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk::inspect {
namespace {

// The second one of the same daemon: others wait meanwhile.
constexpr Nanos start_limit = Nanos::from_s(10), start_again_limit = Nanos::from_s(2);
constexpr Nanos read_limit = Nanos::from_s(10);
constexpr size_t files_max = 1 << 20, ahead_max = 64;

Result<std::pair<Fd, Fd>> pair_of_sockets() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return fail_errno("socketpair", errno);
    return std::pair(Fd(ends[0]), Fd(ends[1]));
}

bool is_socket(int directory, const std::string& name) {
    struct stat st {};
    return ::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(st.st_mode);
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// the process that starts the others

Result<Pidfd> Inspectors::start_souk_inspect(Fd socket) {
    return start_program("souk-inspect", {}, {socket.get()}, false);
}

Status Inspectors::begin() {
    const bool again = process_.pid() != 0;
    if (again) {
        end_(process_);
        (void)process_.exited_within(start_again_limit);
        (void)process_.reap();
    }
    TRY_ASSIGN(auto ends, pair_of_sockets());
    TRY_ASSIGN(process_, start_(std::move(ends.second)));
    const auto word = wait_for_packet(ends.first.get(), answer_bytes_max,
                                      again ? start_again_limit : start_limit);
    if (!word) return wrap("souk-inspect does not begin", word.error());
    TRY_ASSIGN(const Answer said, parse_answer(word->bytes));
    const auto* const why = std::get_if<Refusal>(&said);
    if (!why || !why->why.empty()) return fail("souk-inspect: " + (why ? why->why : "no word"));
    socket_ = std::move(ends.first);
    return {};
}

Result<Fd> Inspectors::open() {
    TRY_ASSIGN(auto ends, pair_of_sockets());
    Status sent = socket_ ? send_packet(socket_.get(), "i", ends.second.get())
                          : Status(fail_errno("souk-inspect", EPIPE));
    if (!sent && sent.error().code != EAGAIN) {  // it has ended
        socket_.reset();
        TRY(begin());
        sent = send_packet(socket_.get(), "i", ends.second.get());
    }
    if (!sent) return wrap("read its image", sent.error());
    return std::move(ends.first);
}

// -------------------------------------------------------------------------------------------------
// one image

Status Inspection::open(Inspectors& inspectors) {
    stop();
    TRY_ASSIGN(socket_, inspectors.open());
    TRY_ASSIGN(watch_, loop_.watch(socket_.get(), POLLIN, [this](short) { hear(); }));
    return {};
}

void Inspection::stop() {
    watch_.close();
    limit_.cancel();
    socket_.reset();
    image_.reset();
    files_.clear();
    facts_ = {};
    done_ = nullptr;
    asked_ = answered_ = 0;
}

void Inspection::read(int image, Done done, std::string_view made_here) {
    done_ = std::move(done);
    Status begun =
        socket_ ? list(image, made_here) : Status(fail("what reads its image has ended"));
    if (begun) begun = ask_more();
    if (!begun || files_.empty()) {
        limit_ = loop_.after(Nanos{}, [this, begun] { end(begun); });
        return;
    }
    limit_ = loop_.after(read_limit, [this] { end(fail("its image is not read in time")); });
}

Status Inspection::list(int image, std::string_view made_here) {
    TRY_ASSIGN(image_, duplicate(image));
    TRY_ASSIGN(const auto names, list_dir(image, "."));
    for (const std::string& name : names) {
        if (!is_image_file(name)) continue;  // CRIU reads none of its logs, nor the manifest
        if (name == made_here) continue;
        if (name == lazy_socket_name && is_socket(image, name)) continue;  // made here
        if (!is_file_of_a_job(name)) return fail(name + ": no file of a job's image");
        const auto question = question_about(name);
        if (!question) continue;
        if (files_.size() == files_max) return fail("an image of too many files");
        File file{name, *question};
        if (*question == FileKind::core) {
            const auto thread = core_number(name);
            if (!thread) return fail(name + ": of no thread");
            file.thread = *thread;
        }
        if (*question == FileKind::ghost) {
            struct stat st {};
            if (::fstatat(image, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
                return fail_errno(name, errno);
            file.bytes = static_cast<uint64_t>(st.st_size);
        }
        files_.push_back(std::move(file));
    }
    return {};
}

Status Inspection::ask_more() {
    for (; asked_ < files_.size() && asked_ - answered_ < ahead_max; ++asked_) {
        const File& file = files_[asked_];
        TRY_ASSIGN(const Fd bytes, open_at(image_.get(), file.name, O_RDONLY | O_NOFOLLOW));
        const Status sent = send_packet(socket_.get(), pack(file.kind), bytes.get());
        if (!sent && sent.error().code == EAGAIN && asked_ > answered_) return {};
        TRY(sent);
    }
    return {};
}

void Inspection::hear() {
    if (!done_) {  // read() tells that it has ended
        watch_.close();
        return socket_.reset();
    }
    if (const Status heard = hear_some(); !heard)
        end(heard);
    else if (answered_ == files_.size())
        end({});
}

Status Inspection::hear_some() {
    while (answered_ < asked_) {
        TRY_ASSIGN(const auto packet, receive_packet(socket_.get(), answer_bytes_max));
        if (!packet) return {};
        if (packet->descriptor) return fail("an answer with a file");
        TRY_ASSIGN(const Answer answer, parse_answer(packet->bytes));
        TRY(take(files_[answered_++], answer));
        TRY(ask_more());
    }
    return {};
}

Status Inspection::take(const File& file, const Answer& answer) {
    if (const auto* why = std::get_if<Refusal>(&answer)) return fail(file.name + ": " + why->why);
    const bool fits = std::visit([&](const auto& said) { return take_one(file, said); }, answer);
    return fits ? Status{} : fail(file.name + ": the answer to another question");
}

bool Inspection::take_one(const File& file, const CoreImage& core) {
    if (file.kind != FileKind::core) return false;
    facts_.cores[file.thread] = core;
    return true;
}

bool Inspection::take_one(const File& file, const GhostMode& ghost) {
    if (file.kind != FileKind::ghost) return false;
    facts_.ghosts.push_back({file.name, ghost.mode, file.bytes});
    return true;
}

bool Inspection::take_one(const File& file, const EntryKinds& kinds) {
    if (file.kind != FileKind::files) return false;
    facts_.kinds = kinds;
    return true;
}

bool Inspection::take_one(const File& file, const ImageNamespaces& namespaces) {
    if (file.kind != FileKind::ids && file.kind != FileKind::inventory) return false;
    facts_.namespaces[file.name] = namespaces;
    return true;
}

bool Inspection::take_one(const File& file, const FsRoot& root) {
    if (file.kind != FileKind::fs) return false;
    facts_.roots[file.name] = root;
    return true;
}

void Inspection::end(const Status& read) {
    const Done done = std::move(done_);
    Result<ImageFacts> facts =
        read ? Result<ImageFacts>(std::move(facts_)) : tl::unexpected(read.error());
    stop();
    done(std::move(facts));
}

}  // namespace souk::inspect
