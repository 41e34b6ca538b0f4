// SPDX-License-Identifier: GPL-2.0-or-later
// AskedProgram: a program of the operator's that marketd asks (docs/filters.md): an executable that
// reads one question, a JSON object, and writes one answer, another. It is started for each
// question by souk-ask (market/ask), which ends it and all that it has started.
//
// So many questions are asked at once at most; the others wait, and their owners (users, peers)
// take turns. Whatever the program does, each question that was taken gets one answer: what the
// program wrote, at most so long, or why there is none. The loop waits for nothing. The first line
// that the program writes to its standard error goes to the log and nowhere else: users and peers
// could read in it what is the operator's.
//
// An executable that others than root and marketd's own user can change is not run. Where marketd
// is root, programs are the user `programs_user`. Owned by Marketd.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "kernel/base/turn_queue.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class AskedProgram {
  public:
    static constexpr size_t answer_bytes_max = 64 << 10;
    struct Options {
        std::string path;           // empty: there is no such program
        uint32_t uid = 0, gid = 0;  // as whom it runs; 0: as marketd
        Nanos limit = Nanos::from_s(5);
        size_t at_once = 2, waits_most = 4'096, waits_of_one = 256;
    };
    // Asked when its turn has come; empty: nobody wants to know it any more, and no answer comes.
    using Question = std::function<std::string()>;
    // Called once, never inside ask().
    using Answer = std::function<void(Result<std::string>)>;

    // `key`: that of the configuration.
    AskedProgram(Loop& loop, Log& log, std::string key, Options options);
    ~AskedProgram() { close(); }

    // Returns the path that is run. Errors: it would not be run now, and why.
    Result<std::string> check() const;
    bool is_set() const { return !options_.path.empty(); }
    // False: too many wait, and nothing comes of it.
    bool ask(const std::string& owner, Question question, Answer answer);
    // The text that it wrote was no answer after all.
    void note_nonsense(const Error& why) { failed(why); }
    // Ends the programs that run. No answer comes any more.
    void close();

  private:
    struct Waiting {
        Question question;
        Answer answer;
    };
    struct Running {
        Pidfd child;
        Watch ends;
        Timer late;
        Fd file;
        Answer answer;
    };
    void start_more();
    Result<std::unique_ptr<Running>> start(const std::string& question);
    void ended(std::list<std::unique_ptr<Running>>::iterator at);
    Result<std::string> answer_of(const Running& running);
    void failed(const Error& why);
    void deliver(const Answer& to, Result<std::string> answer);

    Loop& loop_;
    Log& log_;
    const std::string key_;
    const Options options_;
    TurnQueue<Waiting> waits_;
    std::list<std::unique_ptr<Running>> running_;
    bool starts_ = false;  // start_more() is deferred
    std::shared_ptr<int> life_ = std::make_shared<int>();
};

}  // namespace souk
