// SPDX-License-Identifier: GPL-2.0-or-later
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kernel/sys/host/clock.hpp"
#include "tools/srun/session.hpp"

namespace souk::tools {

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
