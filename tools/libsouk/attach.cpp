// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/libsouk/attach.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

#include "agentd/wire/types.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::tools {
namespace {

constexpr Nanos lost_max = Nanos::from_s(300), pause_least = Nanos::from_ms(50),
                pause_most = Nanos::from_s(2);

class Streams {
  public:
    Streams(const JobId& id, const AttachedStreams& fds) : id_(id), fds_(fds) {}

    // The job's exit status; nothing where the connection broke. Errors: there is no use in another
    // one.
    Result<std::optional<int>> talk(Link& link) {
        wire::Attach request;
        request.id = id_;
        request.resume = begun_;
        for (const int i : {0, 1}) request.offset[i] = written_[i];
        link.queue(request);
        for (bool attached = false;;) {
            if (!link.flush()) return std::optional<int>();
            const bool reads = attached && !ended_ && unsure_.size() < wire::input_window_bytes;
            pollfd ready[2] = {
                {link.fd(), static_cast<short>(POLLIN | (link.has_queued() ? POLLOUT : 0)), 0},
                {reads ? fds_.in : -1, POLLIN, 0}};
            if (::poll(ready, 2, -1) < 0 && errno != EINTR) return fail_errno("poll", errno);
            if (ready[1].revents != 0) TRY(read_input(link));
            if (!(ready[0].revents & ~POLLOUT)) continue;
            const auto open = link.receive();
            for (;;) {
                TRY_ASSIGN(const auto frame, link.next());
                if (!frame) break;
                TRY_ASSIGN(const auto status, take(link, *frame, attached));
                if (status) return status;
            }
            if (!open || !*open) return std::optional<int>();
        }
    }
    bool begun() const { return begun_; }

  private:
    Result<std::optional<int>> take(Link& link, const Link::Frame& frame, bool& attached) {
        switch (frame.type) {
            case wire::frame::attached: {
                TRY_ASSIGN(const auto m, wire::unpack<wire::Attached>(frame.body));
                attached = true;
                take_attached(link, m);
                return std::optional<int>();
            }
            case wire::frame::output: {
                TRY_ASSIGN(const auto m, wire::unpack<wire::Output>(frame.body));
                TRY(write_output(m));
                link.queue(wire::OutputAck{m.stream, written_[m.stream == wire::Stream::err]});
                return std::optional<int>();
            }
            case wire::frame::input_ack: {
                TRY_ASSIGN(const auto m, wire::unpack<wire::InputAck>(frame.body));
                forget_input(m.offset);
                return std::optional<int>();
            }
            case wire::frame::error_text: {
                TRY_ASSIGN(auto m, wire::unpack<wire::ErrorText>(frame.body));
                if (!attached) return fail(m.text.code, m.text);
                return std::optional<int>();
            }
            case wire::frame::exit: {
                TRY_ASSIGN(const auto m, wire::unpack<wire::Exit>(frame.body));
                return std::optional(status_of(m));
            }
            default: return std::optional<int>();  // notices, and what a later agentd may add
        }
    }

    // Returns the status with which srun would exit.
    static int status_of(const wire::Exit& e) {
        if (!e.why.empty() && e.cancelled) return 255;
        if (!e.why.empty() && e.wait_status == 0) return 1;
        if (WIFSIGNALED(e.wait_status)) return 128 + WTERMSIG(e.wait_status);
        return WEXITSTATUS(e.wait_status);
    }

    void take_attached(Link& link, const wire::Attached& m) {
        if (!begun_) {
            for (const int i : {0, 1}) written_[i] = m.offset[i];
            input_at_ = m.input_offset;
        }
        begun_ = true;
        forget_input(m.input_offset);
        winsize size{};
        if (m.tty && fds_.in >= 0 && ::ioctl(fds_.in, TIOCGWINSZ, &size) == 0)
            link.queue(wire::Winch{size.ws_row, size.ws_col});
        std::string_view rest = unsure_;
        for (uint64_t at = input_at_; !rest.empty(); at += wire::stdio_bytes_max) {
            const std::string_view piece = rest.substr(0, wire::stdio_bytes_max);
            link.queue(wire::Input{at, std::string(piece), false});
            rest.remove_prefix(piece.size());
        }
        if (ended_) link.queue(wire::Input{input_at_ + unsure_.size(), {}, true});
    }

    void forget_input(uint64_t safe) {
        if (safe <= input_at_) return;
        unsure_.erase(0, std::min<uint64_t>(safe - input_at_, unsure_.size()));
        input_at_ = safe;
    }

    Status read_input(Link& link) {
        std::string data(32 * 1024, '\0');
        const ssize_t n = ::read(fds_.in, data.data(), data.size());
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) return {};
        data.resize(n > 0 ? static_cast<size_t>(n) : 0);
        ended_ = data.empty();
        link.queue(wire::Input{input_at_ + unsure_.size(), data, ended_});
        unsure_ += data;
        return {};
    }

    // After a break the home sends bytes again that were written already. They are left out.
    Status write_output(const wire::Output& m) {
        uint64_t& written = written_[m.stream == wire::Stream::err];
        const uint64_t end = m.offset + m.data.size();
        if (end <= written) return {};
        std::string_view fresh = m.data;
        if (m.offset < written) fresh.remove_prefix(written - m.offset);
        const bool is_err = m.stream == wire::Stream::err;
        const int to = is_err ? fds_.err : fds_.out;
        if (to >= 0) TRY(write_all(to, fresh, is_err ? "stderr" : "stdout"));
        written = end;
        return {};
    }

    const JobId& id_;
    const AttachedStreams& fds_;
    uint64_t written_[2] = {0, 0};
    std::string unsure_;  // input from input_at_ on, which the home has not confirmed
    uint64_t input_at_ = 0;
    bool begun_ = false, ended_ = false;
};

}  // namespace

Result<int> attach_streams(const std::function<Result<Link>()>& connect, const JobId& id,
                           const AttachedStreams& fds) {
    Streams streams(id, fds);
    Nanos lost_at = Nanos::never(), pause = pause_least;
    for (;;) {
        auto link = connect();
        if (!link && !streams.begun()) return tl::unexpected(link.error());
        if (link) {
            TRY_ASSIGN(const auto status, streams.talk(*link));
            if (status) return *status;
            lost_at = Nanos::never();
        }
        const Nanos now = monotonic_now();
        if (lost_at == Nanos::never()) lost_at = now, pause = pause_least;
        if (now - lost_at >= lost_max)
            return fail("job " + id.text() + " goes on; its agentd was tried for " +
                        std::to_string(lost_max.ns / 1'000'000'000) + " s");
        const timespec span{pause.ns / 1'000'000'000, pause.ns % 1'000'000'000};
        nanosleep(&span, nullptr);
        pause = std::min(Nanos{pause.ns * 2}, pause_most);
    }
}

}  // namespace souk::tools
