// SPDX-License-Identifier: GPL-2.0-or-later
// The loop, the connection, and the way out. What the agentd says and what the user does are in
// session_events.cpp.
#include "tools/srun/session.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "tools/srun/output_file.hpp"
#include "tools/srun/summary.hpp"

namespace souk::tools {
namespace {

constexpr Nanos backoff_min = Nanos::from_ms(50), backoff_max = Nanos::from_s(2);
constexpr Nanos farewell_max = Nanos::from_s(1);
constexpr size_t link_queue_max = 1 << 20;
constexpr int signals_taken[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGTSTP,
                                 SIGCONT, SIGUSR1, SIGUSR2, SIGWINCH};

Result<Fd> take_signals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : signals_taken) {
        // A signal that was ignored when we began (nohup) stays ignored.
        struct sigaction old {};
        sigaction(number, nullptr, &old);
        if (old.sa_handler != SIG_IGN || number == SIGCONT || number == SIGWINCH)
            sigaddset(&set, number);
    }
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signal(SIGPIPE, SIG_IGN);
    Fd fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd) return fail_errno("signalfd", errno);
    return fd;
}

}  // namespace

int Session::submit(wire::Submit request) {
    tty_ = request.spec.launch.tty;
    request_ = std::move(request);
    submitted_here_ = true;
    return run();
}

int Session::attach(JobId id) {
    id_ = std::move(id);
    return run();
}

Status Session::connect() {
    TRY_ASSIGN(Link link, Link::open(socket_));
    link_ = std::move(link);
    if (id_) {
        ask_to_attach();
    } else {
        link_->queue(*request_);
        request_->retry = true;  // from the second time on: it may be there already
        state_ = State::opening;
    }
    return link_->flush();
}

StatusMode Session::status_mode(const SrunOptions& options) {
    if (options.quiet || options.verbose) return StatusMode::never;  // verbose says it all
    const char* kind = std::getenv("TERM");
    const bool can = kind && std::string_view(kind) != "dumb" && isatty(STDERR_FILENO);
    const StatusMode wanted = options.status.value_or(StatusMode::line);
    return wanted == StatusMode::line && !can ? StatusMode::never : wanted;
}

// Opens the files into which the job's output goes instead of srun's own, once the job's id is
// known.
Status Session::open_files() {
    const auto index = options_.array.empty() ? std::nullopt : std::optional(options_.array[0]);
    const auto open_one = [&](const std::string& pattern, int as) -> Status {
        TRY_ASSIGN(const Fd fd, open_output_file(pattern, output_signs_of(options_, *id_, index)));
        if (dup2(fd.get(), as) < 0) return fail_errno(pattern, errno);
        return {};
    };
    const std::string &out = options_.out_file, &err = options_.err_file;
    if (!out.empty()) TRY(open_one(out, STDOUT_FILENO));
    // srun's own messages go where the job's errors go.
    if (!(out + err).empty()) TRY(open_one(err.empty() ? out : err, STDERR_FILENO));
    return {};
}

void Session::news(const std::string& text) {
    job_status_.news(text);
    if (!status_line_.logs()) return draw_status();
    const std::string money = job_status_.money(monotonic_now());
    status_line_.show(id_->text() + ": " + text + (money.empty() ? "" : "; " + money), false);
    (void)job_status_.new_price();  // told with it
}

// Draws the status line at most once a second, when it says something new. It does not write over
// the job's output, or over what its user types.
void Session::draw_status() {
    constexpr Nanos pause = Nanos::from_s(1);
    status_at_ = Nanos::never();
    if (!status_line_.is_line() || !id_ || status_) return;
    const Nanos now = monotonic_now();
    const bool hidden = !output_.screen_free() || (running_ && !tty_ && typed_);
    if (job_status_.changes()) status_at_ = now + pause;
    if (!Terminal::foreground()) return status_line_.clear();
    status_line_.show(job_status_.line(id_->text(), now), hidden);
}

void Session::ask_to_attach() {
    wire::Attach message;
    message.id = *id_;
    message.resume = submitted_here_ || began_;
    for (const auto stream : {wire::Stream::out, wire::Stream::err})
        message.offset[stream == wire::Stream::out ? 0 : 1] = output_.received(stream);
    link_->queue(message);
    state_ = State::attaching;
}

// The connection is lost, or an attempt to connect has failed. The next attempt waits longer, until
// the patience has run out.
void Session::lost(const std::string& why) {
    const Nanos now = monotonic_now();
    link_.reset();
    state_ = State::away;
    pending_signals_.insert(pending_signals_.end(), unsent_signals_.begin(), unsent_signals_.end());
    unsent_signals_.clear();
    if (exit_) return;  // all that it had to say has come
    if (lost_at_ == Nanos::never()) {
        lost_at_ = now;
        lost_why_ = why;
        backoff_ = backoff_min;
    }
    if (now - lost_at_ >= options_.patience)
        return give_up(1, {0,
                           (id_ ? "job " + id_->text() + ": " : std::string()) + lost_why_ +
                               "; it was tried again for " +
                               std::to_string(options_.patience.ns / 1'000'000'000) + " s" +
                               (id_ ? ". The job goes on: srun --attach " + id_->text() : ""),
                           CauseCode::away});
    retry_at_ = std::min(now + backoff_, lost_at_ + options_.patience);
    backoff_ = std::min(Nanos{backoff_.ns * 2}, backoff_max);
}

Nanos Session::next_time() const {
    return std::min({link_ ? Nanos::never() : retry_at_, attention_at_, status_at_});
}

void Session::on_time(Nanos now) {
    if (!link_ && now >= retry_at_) {
        if (!said_lost_ && now - lost_at_ > Nanos::from_s(1)) {
            says(true, lost_why_ + "; trying again");
            said_lost_ = true;
        }
        if (const Status status = connect(); !status) lost(status.error().message);
    }
    if (now >= status_at_) draw_status();
    if (now >= attention_at_) {
        attention_at_ = Nanos::never();
        const std::string text = id_ ? "job " + id_->text() +
                                           (was_running_ ? " is frozen" : " waits") +
                                           (comment_.empty() ? "" : ": " + comment_)
                                     : "";
        if (!running_ && id_ && !options_.verbose) {
            if (status_line_.is_line())
                draw_status();
            else
                says(true, text);
        }
    }
}

int Session::run() {
    auto signals = take_signals();
    if (!signals) {
        say(signals.error().message);
        return 1;
    }
    signals_ = std::move(*signals);
    if (const Status opened = log_.open(options_.log_file); !opened) {
        say(opened.error().message);
        return 1;
    }
    stdin_is_terminal_ = isatty(STDIN_FILENO);
    if (const Status status = connect(); !status) {
        say(status.error().message);  // none to begin with: not worth a wait
        return 1;
    }
    if (tty_) terminal_.raw();
    while (!status_ && !(exit_ && output_.empty())) {
        // The link comes last and is heard first: a signal that was sent after the agentd had died
        // finds it gone.
        enum : size_t { from_signals, from_stdin, to_output, from_link, n_polled };
        std::array<pollfd, n_polled> polled;
        polled.fill({-1, 0, 0});
        polled[from_signals] = {signals_.get(), POLLIN, 0};
        if (link_)
            polled[from_link] = {link_->fd(),
                                 static_cast<short>((output_.full() ? 0 : POLLIN) |
                                                    (link_->has_queued() ? POLLOUT : 0)),
                                 0};
        const bool may_type = !tty_ || Terminal::foreground();
        if (state_ == State::attached && link_->queued_bytes() < link_queue_max &&
            !input_.ended() && !input_.full() && may_type)
            polled[from_stdin] = {STDIN_FILENO, POLLIN, 0};
        if (!output_.empty()) polled[to_output] = {output_.fd(), POLLOUT, 0};

        const Nanos due = next_time(),
                    left = due == Nanos::never() ? due : std::max(due - monotonic_now(), Nanos{});
        const timespec limit{left.ns / 1'000'000'000, left.ns % 1'000'000'000};
        if (ppoll(polled.data(), polled.size(), due == Nanos::never() ? nullptr : &limit, nullptr) <
                0 &&
            errno != EINTR) {
            give_up(1, fail_errno("poll", errno).value());
            break;
        }
        if (polled[from_link].revents & ~POLLOUT) read_link();
        if (polled[from_signals].revents) {
            signalfd_siginfo info{};
            while (read(signals_.get(), &info, sizeof info) == sizeof info)
                on_signal(static_cast<int>(info.ssi_signo));
        }
        if (polled[to_output].revents) write_output();
        // A closed terminal is no end of input: the key for that gives none of these events.
        terminal_lost_ = stdin_is_terminal_ && (polled[from_stdin].revents & (POLLHUP | POLLERR));
        if (polled[from_stdin].revents && !status_) read_stdin();
        on_time(monotonic_now());
        acknowledge();
        if (link_ && link_->has_queued())
            if (const Status status = link_->flush(); !status) lost(status.error().message);
        if (link_ && !link_->has_queued()) unsent_signals_.clear();
    }
    return finish();
}

// The last acknowledgements are worth a moment; then the terminal is as it was, and only then
// words.
int Session::finish() {
    const Nanos until = monotonic_now() + farewell_max;
    while (link_ && link_->has_queued() && link_->flush() && link_->has_queued()) {
        const Nanos left = until - monotonic_now();
        pollfd wait{link_->fd(), POLLOUT, 0};
        if (left.ns <= 0 || poll(&wait, 1, static_cast<int>(left.ns / 1'000'000)) <= 0) break;
    }
    status_line_.clear();
    terminal_.restore();
    if (status_) return *status_;
    const int status = exit_status(*exit_, cancel_signal_);
    if (status_line_.logs()) {
        const auto cost = cost_of_summary(exit_->summary);
        say(id_->text() + ": has ended, exit status " + std::to_string(status) +
            (cost ? ", " + human_money(*cost) + " in all" : ""));
    }
    log_.line("job " + id_->text() + " finished, exit status " + std::to_string(status) +
              (exit_->why.empty() ? "" : ": " + exit_->why));
    if (!exit_->why.empty()) {
        if (cancel_signal_ == 0) say("job " + id_->text() + ": " + exit_->why);
    } else if (WIFSIGNALED(exit_->wait_status) && !options_.quiet) {
        const int number = WTERMSIG(exit_->wait_status);
        if (number != SIGINT && number != SIGPIPE)
            say("job " + id_->text() + ": " + strsignal(number));
    }
    if (options_.json)
        if (const Status written = write_summary(options_.json_file, exit_->summary); !written) {
            say(written.error().message);
            return 1;
        }
    return status;
}

void Session::give_up(int status, const Error& why) {
    status_line_.clear();
    terminal_.restore();
    log_.line(why.message);
    complain(srun, why);
    status_ = status;
}

void Session::says(bool important, const std::string& text) const {
    if (!options_.verbose && (!important || options_.quiet)) return;
    status_line_.clear();
    say(text);
}

}  // namespace souk::tools
