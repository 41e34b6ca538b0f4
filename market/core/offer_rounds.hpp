// SPDX-License-Identifier: GPL-2.0-or-later
// OfferRounds: when a market asks its peers for which of its jobs, and what came of it. Those that
// wait are in one list, and those that run and may gain by a move in another one. A round asks all
// sites to which the job may go at once, and is over when all have answered or when a limit has
// passed: silence is a no. Then the best offer is chosen (site_offer.hpp).
//
// Homes take turns, and the users of a home those of the home: of those who have a job that is due,
// the one about whose jobs was asked least lately goes first, with the job that is due the longest.
// (A home says itself of which user a job is.) A job has pauses that double. Rounds
// begin so far apart that no peer is asked more than it bears, however many jobs wait. Each job
// that waits is here, so the bounds of the book (book.hpp) are those of this list.
//
// Pure; the shell sends what is asked, and brings the answers. Nothing of it is kept on disk: after
// a restart the peers are asked anew.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "market/core/site_offer.hpp"

namespace souk {

class OfferRounds {
  public:
    static constexpr Nanos answer_limit = Nanos::from_s(5), apart = Nanos::from_ms(300),
                           first_wait = Nanos::from_s(2), pause_least = Nanos::from_s(30),
                           pause_most = Nanos::from_s(600);
    // How often is asked. The numbers of two lists differ: those of one begin here.
    struct Pace {
        Nanos apart, first_wait;
        uint64_t first_number;
    };
    static constexpr Pace of_waiting{apart, first_wait, 1};
    static constexpr Pace of_running{Nanos::from_s(2), pause_least, uint64_t{1} << 60};

    struct Answer {
        std::string site;
        std::optional<SiteOffer> offer;  // nullopt: it has not answered
    };
    struct Round {
        uint64_t number = 0;
        Nanos began;
        bool is_open = true;
        OfferWish wish;
        std::vector<Answer> answers;   // of all that were asked, by name
        std::optional<size_t> chosen;  // of `answers`
    };

    explicit OfferRounds(uint64_t seed, const Pace& pace = of_waiting)
        : seed_(seed), pace_(pace), next_(pace.first_number) {}

    // The job waits, or runs, and its user lets it go. It is asked about after a while, as most
    // that wait find a place at once; with other terms than before as soon as its turn comes.
    void note(const JobId& id, uint32_t uid, const JobTerms& terms, Nanos now);
    // It has ended, stays where it is, or is in the other list.
    void forget(const JobId& id);
    // A peer has come: all are asked about anew, as soon as their turn comes. A peer that comes and
    // goes all the time hurries nobody.
    void hurry(Nanos now);
    // The job whose turn it is: begin() or later() follows.
    std::optional<JobId> due(Nanos now);
    // Returns the number of the round; each of these sites, at least one, is sent the question.
    uint64_t begin(const JobId& id, std::vector<std::string> sites, const OfferWish& wish,
                   Nanos now);
    // It has moved: it is asked about as if it were new.
    void begin_anew(const JobId& id, Nanos now);
    // Nobody can be asked about it now.
    void later(const JobId& id, Nanos now);
    // It counts from a site that was asked, once, while the round is open. Else false.
    bool answer(const std::string& site, const SiteOffer& offer, Nanos now);
    // Ends what is silent for too long.
    void tick(Nanos now);
    // When due() or tick() has something to do; never() if nothing waits.
    Nanos next() const;
    // Whether a job is due now, though its turn may be later.
    bool has_due(Nanos now) const {
        return !ready_.empty() || (!by_due_.empty() && by_due_.begin()->first <= now);
    }
    // A program of the operator's has chosen otherwise in that round, which has ended; nullopt:
    // none. False: another one has begun since.
    bool choose(const JobId& id, uint64_t number, std::optional<size_t> which);
    // Jobs of rounds that have ended since.
    std::vector<JobId> take_ended() { return std::exchange(ended_, {}); }
    // The newest round about the job; null: there is none.
    const Round* of(const JobId& id) const;
    size_t size() const { return jobs_.size(); }

  private:
    struct Entry {
        uint32_t uid = 0;
        JobTerms terms;
        Nanos due, pause = pause_least;
        Round round;
    };
    struct Who {
        NodeName home;
        uint32_t uid = 0;
        auto operator<=>(const Who&) const = default;
    };
    struct Home {
        std::set<std::pair<uint64_t, uint32_t>> ready;  // users by their turns
        size_t users = 0;
        uint64_t turn = 0;  // as that of a user
    };
    // The jobs of one user of a home about which is to be asked.
    struct User {
        std::set<std::pair<Nanos, JobId>> due;
        size_t jobs = 0;    // with those of open rounds
        uint64_t turn = 0;  // the number of the newest round, or of the next one when it came
        Nanos listed = Nanos::never();  // its key of by_due_
    };
    void set_due(const JobId& id, Entry& entry, Nanos at);
    void not_due(const JobId& id, const Entry& entry);
    void list(const Who& who, User& user);
    // The number of the newest turn is theirs.
    void took_turn(const JobId& id, const Entry& entry, uint64_t turn);
    void pause(const JobId& id, Entry& entry, Nanos now);
    void close(const JobId& id, Entry& entry, Nanos now);

    const uint64_t seed_;
    const Pace pace_;
    std::map<JobId, Entry> jobs_;
    std::map<Who, User> users_;
    std::map<NodeName, Home> homes_;
    // Users with jobs to ask about, by when the first is due; and the homes of those whose first
    // was due at the last look (Home::ready), by their turns.
    std::set<std::pair<Nanos, Who>> by_due_;
    std::set<std::pair<uint64_t, NodeName>> ready_;
    std::map<uint64_t, JobId> open_;  // rounds by number: the oldest first
    std::vector<JobId> ended_;
    uint64_t next_;
    Nanos free_at_{}, may_hurry_{};
};

// Jobs that run come behind all that wait, but for every tenth turn, which is theirs: else a market
// where some always wait would never look at them.
class OfferTurns {
  public:
    static constexpr int each = 10;
    void had(bool runs) { since_ = runs ? 0 : since_ + 1; }
    bool may_run(const OfferRounds& waiting, Nanos now) const {
        return since_ >= each - 1 || !waiting.has_due(now);
    }

  private:
    int64_t since_ = 0;  // turns of jobs that wait, after the newest of one that runs
};

}  // namespace souk
