// SPDX-License-Identifier: GPL-2.0-or-later
// The solver's text protocol: one command a line, blanks between words. Both sides are here: the
// solver program parses commands and formats answers, a market that uses such a program formats
// commands and parses answers. Pure text.
//
//   info                                  one line: solver NAME jobs N providers N time T
//   aj id value memory cpus start run [uid]   add a job: value per CPU-hour, MB, CPUs on one node,
//                                         seconds since the market began, run time in seconds (-1:
//                                         not known), user (default: one of its own, with the
//                                         number of the job)
//   ag id value start run uid [pack] [spread=N] [near[=US[:MBIT]]] PART...   add a job of several
//                                         components, placed together or not at all; they are jobs
//                                         with the ids from this one on. PART is
//                                         [COUNTx]CPUS:MEMORY, with @PROVIDER behind it nowhere but
//                                         there, with :optional (these last) placed only beside the
//                                         others. spread: at most N of them on one provider; pack:
//                                         on few providers; near: on providers of one network, or
//                                         on one, within a round trip (0: any), with a bandwidth
//   dj id | uj id value                   delete a job | change its value
//   jmd id | jfd id                       its start, move or thaw is done | its freeze is done
//   rj id provider | fj id provider       the job runs there already | it is frozen there (0: it is
//                                         not known where); for who asks with `reset` each time
//   ap id reserve memory cpus start [speed] [near=NETWORK[:US:MBIT]]   add a provider; speed is 100
//                                         if it is not said. NETWORK: a number above 0; from it to
//                                         others of it the longest round trip, the least bandwidth
//   dp id | up id reserve                 delete a provider | change its reserve
//   time t | go                           the time is t seconds | solve
//   alloc                                 job and provider, a line each, of what was decided and
//                                         not yet read here; provider 0: suspend
//   payment                               job and price per CPU-hour, a line each, of all that run
//   lj | lp                               list jobs: id user state value memory cpus provider |
//                                         list providers: id reserve memory cpus speed, then the
//                                         jobs there
//   reset | set solver NAME | set pricing NAME | exit      mig is greedy_migration
//   set OPTION VALUE                      of solver_options.hpp: set min-stay 10m
//
// A command that cannot be taken is answered by one line "error: ...", and changes nothing.
// Otherwise only info, alloc, payment, lj and lp answer. Lists have no end mark: who must know that
// one is complete sends `info` after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "market/core/types.hpp"

namespace souk::market {

inline constexpr size_t protocol_line_max = 4096;

namespace command {
struct Info {};
struct AddJob {
    JobKey id;
    Money value;
    int64_t memory_mb = 0;
    int32_t cpus = 1;
    int64_t start_s = 0;
    int64_t run_s = -1;
    uint32_t user = 0;
};
struct AddGang {
    struct Part {
        int32_t count = 1, cpus = 1;
        int64_t memory_mb = 0;
        ProviderKey only;
        bool optional = false;
    };
    JobKey id;
    Money value;
    int64_t start_s = 0;
    int64_t run_s = -1;
    uint32_t user = 0;
    GangLayout layout;
    std::vector<Part> parts;
};
struct DeleteJob {
    JobKey id;
};
struct UpdateJob {
    JobKey id;
    Money value;
};
struct MoveDone {
    JobKey id;
};
struct FreezeDone {
    JobKey id;
};
// The place of a job that was just added.
struct PlaceJob {
    JobKey id;
    ProviderKey provider;
    bool frozen = false;
};
struct AddProvider {
    ProviderKey id;
    Money reserve;
    int64_t memory_mb = 0;
    int32_t cpus = 1;
    int64_t start_s = 0;
    int32_t speed = speed_standard;
    uint64_t network = 0;
    int64_t trip_us = 0, mbit = 0;
};
struct DeleteProvider {
    ProviderKey id;
};
struct UpdateProvider {
    ProviderKey id;
    Money reserve;
};
struct Time {
    int64_t s = 0;
};
struct Go {};
struct Alloc {};
struct Payments {};
struct ListJobs {};
struct ListProviders {};
struct Reset {};
struct Set {
    std::string what, value;
};
struct Exit {};
}  // namespace command

using Command =
    std::variant<command::Info, command::AddJob, command::AddGang, command::DeleteJob,
                 command::UpdateJob, command::MoveDone, command::FreezeDone, command::PlaceJob,
                 command::AddProvider, command::DeleteProvider, command::UpdateProvider,
                 command::Time, command::Go, command::Alloc, command::Payments, command::ListJobs,
                 command::ListProviders, command::Reset, command::Set, command::Exit>;

// A line without its newline. Errors name the command, the word and what it should be.
Result<Command> parse_command(std::string_view line);
// The line for a command, without newline; parse_command of it gives the same command.
std::string format_command(const Command& command);

// A line of `alloc`; provider 0: suspend.
struct AllocLine {
    JobKey job;
    ProviderKey provider;
};
struct PaymentLine {
    JobKey job;
    Money price;
};
Result<AllocLine> parse_alloc_line(std::string_view line);
Result<PaymentLine> parse_payment_line(std::string_view line);
std::string format_alloc_line(const AllocLine& line);
std::string format_payment_line(const PaymentLine& line);
// The text after "error: " if the line is one; empty if it is not.
std::string_view error_of(std::string_view line);

}  // namespace souk::market
