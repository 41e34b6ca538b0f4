// SPDX-License-Identifier: GPL-2.0-or-later
// JobLog: the log of one (job, epoch): every line names both. A value; the Log outlives it.
#pragma once

#include <string>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class JobLog {
  public:
    JobLog(Log& log, JobId id, Epoch epoch) : log_(&log), id_(std::move(id)), epoch_(epoch) {}

    void info(std::string_view message, Fields fields) const {
        log_->info(message, with_job(std::move(fields)));
    }
    void warning(std::string_view message, const Error& why) const {
        log_->warning(message, with_job({{"WHY", why}}));
    }
    void warning(std::string_view message, Fields fields) const {
        log_->warning(message, with_job(std::move(fields)));
    }
    void error(std::string_view message, const Error& why) const {
        log_->error(message, with_job({{"WHY", why}}));
    }
    // For trouble that many jobs have at once: a few lines a minute, for all jobs together.
    void limited(std::string_view key, std::string_view message, const Error& why) const {
        log_->limited(key, Loop::now(), Level::warning, message, with_job({{"WHY", why}}));
    }

    const JobId& id() const { return id_; }

  private:
    Fields with_job(Fields fields) const {
        fields.insert(fields.begin(), {{"JOB", id_.text()}, {"EPOCH", epoch_.n}});
        return fields;
    }
    Log* log_;
    JobId id_;
    Epoch epoch_;
};

}  // namespace souk
