// SPDX-License-Identifier: GPL-2.0-or-later
// The loop, the connection, and the way out; then what the agentd says, and what the user does.
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
#include <utility>

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

namespace frame = wire::frame;

namespace {
constexpr size_t signals_max = 16;  // that wait for the agentd; more of them say nothing new
constexpr Nanos status_pause = Nanos::from_s(1);
}  // namespace

// ---- what the agentd says

void Session::read_link() {
    const Result<bool> open = link_->receive();
    for (;;) {
        auto frame = open ? link_->next() : Result<std::optional<Link::Frame>>(std::nullopt);
        if (!frame) return give_up(1, frame.error());
        if (!*frame) break;
        on_frame(**frame);
        if (!link_ || status_) return;
    }
    if (!open) return lost(open.error().message);
    if (!*open) lost("the agentd has gone away");
}

void Session::on_frame(const Link::Frame& frame) {
    const auto with = [&]<class T>(void (Session::*handle)(const T&)) {
        const auto message = wire::unpack<T>(frame.body);
        if (message)
            (this->*handle)(*message);
        else
            give_up(1, message.error());
    };
    switch (frame.type) {
        case frame::submitted: return with(&Session::on_submitted);
        case frame::attached: return with(&Session::on_attached);
        case frame::notice: return with(&Session::on_notice);
        case frame::meter: return with(&Session::on_meter);
        case frame::error_text:
            if (const auto message = wire::unpack<wire::ErrorText>(frame.body))
                on_error(message->text);
            return;
        case frame::output:
            if (const auto message = wire::unpack<wire::Output>(frame.body)) {
                const uint64_t missing =
                    output_.take(message->stream, message->offset, message->data);
                if (missing) says(true, std::to_string(missing) + " bytes of output are lost");
            }
            return;
        case frame::input_ack:
            if (const auto message = wire::unpack<wire::InputAck>(frame.body))
                input_.acknowledge(message->offset);
            return;
        case frame::exit:
            if (auto message = wire::unpack<wire::Exit>(frame.body)) exit_ = std::move(*message);
            return;
        default: return;  // ok, and what a later agentd may add
    }
}

void Session::on_submitted(const wire::Submitted& message) {
    id_ = message.id;
    says(false, "job " + id_->text());
    log_.line("job " + id_->text() + " submitted");
    if (const Status opened = open_files(); !opened) return give_up(1, job_goes_on(opened.error()));
    if (hung_up_) return hang_up();
    state_ = State::attaching;  // the agentd attaches us by itself
}

void Session::on_attached(const wire::Attached& message) {
    const bool first = !submitted_here_ && !began_;
    if (first) {
        if (const Status opened = open_files(); !opened) return give_up(1, opened.error());
        output_.begin(message.offset);
        acked_[0] = message.offset[0];
        acked_[1] = message.offset[1];
        tty_ = message.tty && Terminal::present();
        if (tty_) terminal_.raw();
        if (stdin_is_terminal_)
            says(true, "attached to job " + id_->text() +
                           ": keys and Ctrl-C are the job's; ~. at the start of a line leaves it "
                           "running");
    }
    input_.resume(message.input_offset, first);
    running_ = message.phase == JobPhase::running || message.phase == JobPhase::moving;
    was_running_ |= message.phase != JobPhase::waiting && message.phase != JobPhase::starting;
    if (!running_ && message.phase != JobPhase::finished)
        attention_at_ = monotonic_now() + Nanos::from_s(1);
    settle();
}

void Session::settle() {
    if (said_lost_) says(true, "connected again");
    lost_at_ = retry_at_ = Nanos::never();
    said_lost_ = false;
    const bool again = began_;
    began_ = true;
    state_ = State::attached;
    if (tty_ && (again || !submitted_here_)) send_size();  // it may have changed meanwhile
    // Input that was not confirmed goes again, in pieces that a frame holds.
    std::string_view rest = input_.unconfirmed();
    for (uint64_t offset = input_.base(); !rest.empty();) {
        const std::string_view piece = rest.substr(0, wire::stdio_bytes_max);
        send_input(offset, piece, false);
        offset += piece.size();
        rest.remove_prefix(piece.size());
    }
    if (input_.ended()) send_input(input_.end(), {}, true);
    std::vector<int> numbers;
    numbers.swap(pending_signals_);
    for (const int number : numbers) on_signal(number);
}

void Session::on_notice(const wire::Notice& message) {
    using What = TellWhat;
    const bool important = message.kind == What::warning;
    if (message.kind != What::finished)
        log_.line("job " + id_->text() + " " +
                  (message.text.empty() ? to_string(message.kind) : message.text));
    const bool by_line = status_mode(options_) == StatusMode::log;  // says each by itself
    if (!by_line && (message.kind != What::comment || !message.text.empty()))
        says(important, id_->text() + ": " + message.text);
    const std::string news_text = message.text.empty() ? to_string(message.kind) : message.text;
    switch (message.kind) {
        case What::started:
        case What::moved:
        case What::continued:
            running_ = was_running_ = true;
            warned_frozen_ = false;
            comment_.clear();
            attention_at_ = Nanos::never();
            break;
        case What::frozen:
            running_ = false;
            waits(message.text);
            break;
        case What::comment:
            if (!running_ && message.text != comment_) waits(message.text);
            break;
        // srun stops too if the terminal's key stopped the job, or where a shell would take its
        // terminal back. A job without a terminal that stops by itself may go on by itself as well,
        // and nobody would continue us then.
        case What::stopped:
            if (tty_ || std::exchange(told_to_stop_, false)) stop_self();
            break;
        case What::finished:  // the exit follows
        case What::warning: break;
    }
    if (message.kind != What::finished && message.kind != What::stopped && !status_)
        news(news_text);
}

// The line is written anew when the job is elsewhere or pays another price. In a log prices that
// change all the time are told once a minute.
void Session::on_meter(const wire::Meter& message) {
    constexpr Nanos price_pause = Nanos::from_s(60);
    const Nanos now = monotonic_now();
    job_status_.meter(message, now);
    if (!status_line_.logs()) return draw_status();
    if (now < price_at_ || !job_status_.new_price()) return;
    price_at_ = now + price_pause;
    status_line_.show(id_->text() + ": " + job_status_.money(now), false);
}

void Session::waits(const std::string& comment) {
    comment_ = comment;
    if (attention_at_ == Nanos::never()) attention_at_ = monotonic_now() + Nanos::from_s(1);
}

void Session::on_error(const Cause& why) {
    if (state_ == State::attached) return says(true, why);
    const bool submitted = submitted_here_ && id_;
    give_up(1, {0,
                submitted ? why + ". The job is submitted and goes on: srun --attach " + id_->text()
                          : std::string(why),
                why.code});
}

Error Session::job_goes_on(Error why) const {
    if (id_) why.message += "; job " + id_->text() + " goes on: srun --attach " + id_->text();
    return why;
}

// ---- output and input

void Session::write_output() {
    const wire::Stream stream = output_.next_stream();
    status_line_.clear();
    const Status status = output_.write_some();
    if (status) return (void)(status_at_ = monotonic_now() + status_pause);
    if (status.error().code == EPIPE || stream == wire::Stream::err) {
        // Nobody reads: the job learns it as a writer to a closed pipe does.
        output_.close(stream);
        if (stream == wire::Stream::out) forward(SIGPIPE);
        return;
    }
    give_up(1, job_goes_on(status.error()));
}

void Session::acknowledge() {
    if (!link_ || state_ != State::attached) return;
    for (const auto stream : {wire::Stream::out, wire::Stream::err}) {
        uint64_t& acked = acked_[stream == wire::Stream::out ? 0 : 1];
        if (output_.written(stream) <= acked) continue;
        acked = output_.written(stream);
        link_->queue(wire::OutputAck{stream, acked});
    }
}

void Session::read_stdin() {
    char buffer[32 * 1024];
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    typed_ |= stdin_is_terminal_;
    if (n > 0 && !stdin_is_terminal_) return typed({buffer, static_cast<size_t>(n)});
    if (n > 0) {
        const auto [data, leaves] = detach_key_.take({buffer, static_cast<size_t>(n)});
        if (!data.empty()) typed(data);
        return leaves ? detach() : void();
    }
    if (const std::string rest = detach_key_.end(); !rest.empty()) typed(rest);
    if (terminal_lost_ && !options_.hangup_kills) return hang_up();
    // The end, or a stdin that cannot be read (a terminal that hung up): both end the job's input.
    input_.set_ended();
    send_input(input_.end(), {}, true);
}

// A job that runs has a terminal that makes signals of keys. For one that waits or is frozen we are
// that.
void Session::typed(std::string_view data) {
    const auto key = tty_ && !running_ ? std::find_if(data.begin(), data.end(), Terminal::signal_of)
                                       : data.end();
    const std::string_view before(data.begin(), key);
    if (!before.empty()) send_input(input_.add(before), before, false);
    if (key == data.end()) return;
    on_signal(Terminal::signal_of(*key));
    typed({key + 1, data.end()});
}

void Session::send_input(uint64_t offset, std::string_view data, bool eof) {
    if (link_) link_->queue(wire::Input{offset, std::string(data), eof});
}

// ---- signals

void Session::on_signal(int number) {
    if (number == SIGWINCH) return tty_ ? send_size() : void();
    if (number == SIGHUP && !options_.hangup_kills) return hang_up();
    if (number == SIGCONT && tty_) {
        terminal_.raw();
        send_size();
    }
    if (state_ != State::attached) {
        // A job without an id cannot be signalled. While the agentd is away a signal waits, within
        // a bound.
        if (number == SIGTSTP) return stop_self();
        if (pending_signals_.size() < signals_max) pending_signals_.push_back(number);
        return;
    }
    if (number == SIGTSTP) told_to_stop_ = true;
    if (number == SIGCONT) told_to_stop_ = false;
    const bool ends =
        number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
    if (!running_ && ends) return cancel(number);
    if (!running_ && number == SIGTSTP) return stop_self();
    if (!running_ && number == SIGCONT) return;
    forward(number);
}

// The terminal is gone, or the connection behind it: no reason for the job to end. What it writes
// waits in its spool. A submission that is not answered yet is waited for: it may have become a
// job.
void Session::hang_up() {
    hung_up_ = true;
    if (id_) give_up(128 + SIGHUP, job_goes_on({0, "the terminal is gone"}));
}

void Session::detach() {
    status_line_.clear();
    terminal_.restore();
    const std::string goes_on = "job " + id_->text() + " goes on: srun --attach " + id_->text();
    log_.line("detached; " + goes_on);
    if (!options_.quiet) say("detached; " + goes_on);
    status_ = 0;
}

void Session::forward(int number) {
    if (!link_ || unsent_signals_.size() >= signals_max) return;
    link_->queue(wire::Signal{number});
    unsent_signals_.push_back(number);
}

// There is no process that could take the signal: the agentd cancels the job instead. What never
// ran at once; of what is frozen work would be lost, so a key on the terminal counts when it comes
// twice.
void Session::cancel(int number) {
    if (was_running_ && !warned_frozen_ && number == SIGINT) {
        warned_frozen_ = true;
        return says(true, "job " + id_->text() + " is frozen; once more to cancel it");
    }
    if (cancel_signal_) return;
    cancel_signal_ = number;
    forward(number);
}

void Session::stop_self() {
    terminal_.restore();
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    // If srun has a terminal of its own, the key reached the job alone. So we stop with all of our
    // process group, as the key would have done. The signal is delivered when it is unblocked, and
    // we are back when we are continued.
    kill(tty_ ? 0 : getpid(), SIGTSTP);
    sigset_t before;
    sigprocmask(SIG_UNBLOCK, &stop, &before);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    if (tty_) terminal_.raw();
    // The SIGCONT that woke us is told to the job when it is read. If none is there, the kernel did
    // not stop us (nobody could continue an orphaned process group): then the job may not stay
    // stopped either.
    sigset_t waiting;
    if (sigpending(&waiting) == 0 && !sigismember(&waiting, SIGCONT) && running_) forward(SIGCONT);
}

void Session::send_size() {
    if (!link_ || state_ != State::attached) return;
    const Terminal::Size size = Terminal::size();
    link_->queue(wire::Winch{size.rows, size.cols});
}

}  // namespace souk::tools
