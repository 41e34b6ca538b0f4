// SPDX-License-Identifier: GPL-2.0-or-later
// DumpCourse: what one dump is for, in which form it goes, whether it is begun once more, and how
// it ended, from the word that CRIU is wanted to the word that the job goes on or is dumped.
//
// Pure. Owned by the Cell, which does it.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "checkpoint/plan.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class DumpCourse {
  public:
    // For a checkpoint: the image stays, and the job goes on. Else for a move, or to disk.
    void wanted(bool for_checkpoint) { for_checkpoint_ = for_checkpoint; }
    bool for_checkpoint() const { return for_checkpoint_; }

    // CRIU is ready. What the last transfers to its destination made; 0: not known, or no move.
    // no_hurry: as of guest::Do.
    void begin(double link_bytes_per_s, bool no_hurry = false) {
        link_ = link_bytes_per_s;
        no_hurry_ = no_hurry;
        if (!again()) tries_ = 0;
    }
    double link_bytes_per_s() const { return link_; }
    bool no_hurry() const { return no_hurry_; }
    void planned(const MovePlan& plan, uint64_t dirty_expected_bytes_per_s) {
        forecast_ = plan.forecast;
        forecast_.dirty_expected_bytes_per_s = dirty_expected_bytes_per_s;
    }
    void left_to_send(uint64_t bytes) { forecast_.frozen_bytes = bytes; }
    const MoveForecast& forecast() const { return forecast_; }
    MoveForm form() const { return forecast_.form; }
    // Memory stays in the frozen job.
    bool live() const { return form() != MoveForm::stop_and_copy; }

    // Once more: with all memory in the image, or as before, what kept it being of a moment. When
    // it may begin; none: that was often enough.
    std::optional<Nanos> as_before() {
        if (tries_ >= tries_max) return std::nullopt;
        again_ = Again::as_before;
        return Nanos{first_wait.ns << tries_++};
    }
    void with_all_memory() { again_ = Again::with_all_memory; }
    bool again() const { return again_ != Again::no; }
    bool needs_all_memory() const { return again_ == Again::with_all_memory; }
    // It is under way again, or given up: whether it was to be begun once more.
    bool take_again() { return std::exchange(again_, Again::no) != Again::no; }

    // It is undone: because of that trouble, or with its image whole. of_job: as of DumpFailed.
    void fails(Trouble why, bool of_job = false) {
        trouble_ = std::move(why);
        of_job_ = of_job;
    }
    bool of_job() const { return of_job_; }
    void keeps_image() { image_stays_ = true; }
    Trouble take_trouble() { return std::exchange(trouble_, {}); }
    bool take_image() { return std::exchange(image_stays_, false); }

  private:
    enum class Again : uint8_t { no, with_all_memory, as_before };
    static constexpr Nanos first_wait = Nanos::from_ms(10);  // twice as long each time
    static constexpr int tries_max = 5;

    bool for_checkpoint_ = false, image_stays_ = false, no_hurry_ = false, of_job_ = false;
    Again again_ = Again::no;
    int tries_ = 0;
    double link_ = 0;
    MoveForecast forecast_;
    Trouble trouble_;
};

}  // namespace souk
