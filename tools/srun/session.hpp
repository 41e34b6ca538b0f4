// SPDX-License-Identifier: GPL-2.0-or-later
// Session: srun attached to one job, from the submission (or --attach) to its end. One loop waits
// for the agentd, stdin, signals and time; nothing polls. When the agentd goes away it is tried
// again with a back-off, and the session goes on at its offsets: no byte of output is lost or
// printed twice, no byte of input is lost.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tools/common/job_status.hpp"
#include "tools/common/link.hpp"
#include "tools/srun/detach_key.hpp"
#include "tools/srun/job_log.hpp"
#include "tools/srun/options.hpp"
#include "tools/srun/streams.hpp"
#include "tools/srun/terminal.hpp"

namespace souk::tools {

class Session {
  public:
    Session(const SrunOptions& options, std::string socket)
        : options_(options), socket_(std::move(socket)), status_line_(status_mode(options)) {}
    // Submits and stays, or attaches to a job. Returns srun's exit status; errors are already said.
    int submit(wire::Submit request);
    int attach(JobId id);

  private:
    static StatusMode status_mode(const SrunOptions& options);
    Status open_files();
    void news(const std::string& text);
    void draw_status();
    // opening: a submission is not answered yet
    enum class State { opening, attaching, attached, away };

    int run();
    Status connect();  // and say what we want
    void ask_to_attach();
    void lost(const std::string& why);
    Nanos next_time() const;
    void on_time(Nanos now);

    void read_link();
    void on_frame(const Link::Frame& frame);
    void on_submitted(const wire::Submitted& message);
    void on_attached(const wire::Attached& message);
    void on_notice(const wire::Notice& message);
    void on_meter(const wire::Meter& message);
    void on_error(const Cause& why);
    void settle();  // the state is `attached` now: what waited for it goes out

    void read_stdin();
    void typed(std::string_view data);
    void send_input(uint64_t offset, std::string_view data, bool eof);
    void write_output();
    void acknowledge();

    void on_signal(int number);
    void hang_up();
    void detach();
    void forward(int number);
    void cancel(int number);
    void stop_self();
    void send_size();

    void waits(const std::string& comment);
    void says(bool important, const std::string& text) const;
    void give_up(int status, const Error& why);
    Error job_goes_on(Error why) const;
    int finish();

    const SrunOptions& options_;
    std::string socket_;
    std::optional<Link> link_;
    State state_ = State::opening;
    std::optional<wire::Submit> request_;
    std::optional<JobId> id_;
    bool submitted_here_ = false, began_ = false;
    std::optional<int> status_;  // set: leave the loop

    OutputQueue output_;
    InputBuffer input_;
    DetachKey detach_key_;
    uint64_t acked_[2] = {0, 0};
    Terminal terminal_;
    bool tty_ = false;      // the job has a terminal, and we are it
    bool running_ = false;  // as far as we were told
    bool was_running_ = false;
    Fd signals_;
    std::vector<int> pending_signals_;  // came while no agentd was there
    std::vector<int> unsent_signals_;   // queued on the link, not all of it written yet
    int cancel_signal_ = 0;             // the signal that made us cancel the job
    bool warned_frozen_ = false;
    bool told_to_stop_ = false;  // a SIGTSTP has been passed on, and the job has not stopped yet
    bool hung_up_ = false;
    bool stdin_is_terminal_ = false, terminal_lost_ = false;

    Nanos lost_at_ = Nanos::never(), retry_at_ = Nanos::never(), backoff_;
    std::string lost_why_;
    bool said_lost_ = false;
    Nanos attention_at_ = Nanos::never();  // then say why it does not run
    std::string comment_;
    std::optional<wire::Exit> exit_;
    JobLog log_;
    JobStatus job_status_;
    bool typed_ = false;                // on a terminal that echoes it
    Nanos status_at_ = Nanos::never();  // then its line is written anew
    Nanos price_at_{INT64_MIN / 2};     // from then on another price is worth a line of the log
    mutable StatusLine status_line_;
};

}  // namespace souk::tools
