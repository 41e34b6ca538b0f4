// SPDX-License-Identifier: GPL-2.0-or-later
// DecisionText: the decision log as text (docs/decision-log.md has its grammar). It holds what the
// text has said of each job and machine, and writes what is different now; a snapshot says all of
// it anew. Pure: its owner takes the text, stores it, and asks for a snapshot when it begins a new
// segment or has lost some text. Owned by marketd.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "market/core/decision_log.hpp"
#include "market/core/key_map.hpp"

namespace souk::market {

class DecisionText final : public DecisionLog {
  public:
    // Pseudonyms of jobs and of users, as the text has them in place of ids. Users have others on
    // other days, and the day is that of the newest snapshot (`since`, Unix time): so each user has
    // one pseudonym between two snapshots, and who prices jobs from the text sees whose are
    // together.
    struct Pseudonyms {
        std::function<std::string(const JobId&)> job;
        std::function<std::string(uint32_t uid, Nanos since)> user;
    };
    // `number`: of the newest decision that was ever logged.
    DecisionText(Pseudonyms pseudonyms, uint64_t number)
        : pseudonyms_(std::move(pseudonyms)), number_(number) {}

    // `why`, one word: the next decision is written as a snapshot, and before it only that receipts
    // were written of which nothing is known.
    void begin(std::string why);
    // Nothing is written until begin(); decisions are counted.
    void mute();
    // The newest decision, and all that it knew, said anew: what a new segment begins with. To be
    // asked when nothing is told that is not decided.
    std::string restate(const Market& market, Nanos now);
    // Returns what has been written since this was last asked: whole lines, one block.
    std::string take();
    // A pseudonym that take() gave for the first time in its last answer, and whose it is.
    struct Named {
        std::string job_name, user_name, user;
        JobId job;
        uint32_t uid = 0;
    };
    std::vector<Named> take_named() { return std::exchange(named_, {}); }

    void told(const Node& node, const ProviderSpec& spec) override;
    void told(const Job& job, const JobDemand& spec) override;
    void gone(const Job& job) override;
    void changed(JobKey job) override;
    void decided(const Market& market, Nanos now) override;
    void reckoned(const Solver::PriceStart& round, Nanos now) override;
    void reckoned(std::span<const Payment> some, Nanos now) override;
    void ordered(const Job& job, Money price) override;
    void in_force(const Job& job, Nanos now) override;
    void cut(const Job& job, Nanos now) override;
    void taken_back(const Job& job, const Receipt& receipt, Nanos now) override;
    void posted(const Job& job, const Receipt& receipt, Nanos now) override;
    uint64_t number() const override { return number_; }

  private:
    struct Known {
        uint64_t key = 0;  // 0: this index is free
        bool named = false, told = false, dirty = false, held = false, gone = false;
        JobDemand said;       // by the newest line
        JobDemand now;        // as the solver was told
        ProviderKey slot;     // as the text has it
        Money price{-1};      // reckoned last; below 0: none while it has a place
        uint64_t priced = 0;  // on which decision that was
        Money paid{-1};       // in force, and to whom
        NodeName payee;
    };
    struct KnownNode {
        ProviderKey key;
        NodeName name;
        bool named = false, dirty = false;
        ProviderSpec said, now;
    };
    uint32_t index_of(JobKey key, bool add);
    uint32_t index_of(ProviderKey key) const;
    void mark(uint32_t j);
    void open_block(Nanos now);
    void line(char kind, uint64_t index);
    void attribute(const char* name, int64_t value);
    void forget_gone(bool silently);
    void snapshot(const Market& market, Nanos now);
    bool write_decision(const Market& market, Nanos now, const std::string& why);
    void write_options(const Market& market);
    void write_node(uint32_t n);
    void write_job(const Job& job, uint32_t j);
    void write_place(const Solver& solver, uint32_t j);
    void write_in_force(const Job& job, uint32_t j);
    void write_account(const JobRecord& record);
    void write_price(uint32_t j, Money price, std::string& same);

    const Pseudonyms pseudonyms_;
    uint64_t number_;
    uint64_t round_ = 0;         // the decision that the newest round of prices was reckoned on
    Nanos since_;                // the newest snapshot
    std::string why_ = "start";  // not empty: the next block is a snapshot
    bool muted_ = false;
    bool open_ = false;  // a block is open in text_
    std::string text_;
    std::vector<Named> named_;
    KeyMap jobs_, nodes_;
    std::vector<Known> known_;
    std::vector<uint32_t> free_, dirty_, held_, gone_;
    std::vector<KnownNode> known_nodes_;
    std::vector<uint32_t> dirty_nodes_;
    std::string options_, turn_;  // as the text has them
};

}  // namespace souk::market
