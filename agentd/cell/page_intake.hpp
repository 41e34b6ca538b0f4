// SPDX-License-Identifier: GPL-2.0-or-later
// PageIntake: the memory of a job that is restored here, where it is not in CRIU's files. It comes
// before the image (pre-copy), then what is missing comes from the source, or out of a file of the
// image (checkpoint/page_file.hpp); all of it is put in place through a PagePlace, while CRIU holds
// the restored job (pages_first) or while the job runs and waits for what it touches (post_copy).
//
//   precopy memory may come before the image does
//   faults  CRIU restores: only what is waited for may be put
//   any     CRIU holds the job: everything may be put
//   whole   nothing is missing any more
//
// Owned by the Cell. What fails: the kernel, CRIU's protocol, a page file that is damaged, a source
// that is gone; then the copy must be ended, and its capsule with it: without the userfaultfds
// missing memory would read as zeros.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/images.hpp"
#include "checkpoint/page_file.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/precopy_store.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/move.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// The place for pages: as PageSink (checkpoint/page_sink.hpp), which says what each method does.
class PagePlace {
  public:
    virtual ~PagePlace() = default;
    virtual int fd() const = 0;
    virtual Result<std::vector<PageRange>> on_readable() = 0;
    virtual std::vector<int> new_uffds() = 0;
    virtual Status restored() = 0;
    virtual Status put(const PageRange& range, std::string_view bytes) = 0;
    virtual bool whole() const = 0;
    virtual uint64_t bytes_put() const = 0;
};
// A PageSink that listens in the directory of the image.
Result<std::unique_ptr<PagePlace>> listen_for_faults(int image);

class PageIntake {
  public:
    struct Hooks {
        std::function<Result<std::unique_ptr<PagePlace>>(int image)> place;
        // A userfaultfd that the capsule is to keep should this daemon end; then, all of them not.
        std::function<Status(int uffd)> keep;
        std::function<void()> let_go;
        // Asks the source. any: all pages may come; else these. bytes_put: how much of it is put.
        std::function<void(bool any, uint64_t bytes_put, const std::vector<PageRange>& wishes)>
            want;
        // The job may run without the rest (post_copy).
        std::function<void()> may_run;
        std::function<void()> whole;
        std::function<void(const Error& why)> failed;
    };
    // possible: this machine can put memory in place past an image.
    PageIntake(Loop& loop, bool possible, Hooks hooks)
        : loop_(loop), possible_(possible), hooks_(std::move(hooks)) {}

    // Ahead of the image, at most so many bytes and a little more. lost: its source is gone, or
    // wants none of it.
    Status expect_precopy(uint64_t bytes);
    Status take_precopy(const PageRange& range, std::string_view bytes);
    void precopy_lost();

    // How the rest comes; the form of an image with a page file is found by begin().
    void expect(MoveForm form) { form_ = form; }
    MoveForm form() const { return form_; }
    // The image is here, in `image`, its page file in `pages` (the same directory, or that of the
    // image which it is linked from). What came ahead and the image does not name is dropped.
    // `key`: of an encrypted page file.
    Status begin(int image, int pages, const Manifest& manifest, const DiskKey& key = {});
    Status use_precopy(int image);
    // CRIU is about to restore.
    Status listen(int image);
    bool listening() const { return place_ != nullptr; }

    // From the source.
    Status put(const PageRange& range, std::string_view bytes);
    // CRIU holds the restored job: whole, may_run or failed follow.
    void restored();
    // Memory is missing yet.
    bool incomplete() const { return place_ && stage_ != Stage::whole; }
    // CRIU has said its last word.
    void job_runs();
    // The capsule is gone.
    void end();

  private:
    enum class Stage : uint8_t { precopy, faults, any, whole };
    void faults();
    void serve(const std::vector<PageRange>& wishes);
    void read_file();
    void place_store();
    Result<std::vector<PageRange>> serve_from_store(const std::vector<PageRange>& wishes);
    uint64_t put_of_source() const { return place_->bytes_put() - store_put_; }
    void is_whole();
    void fail_with(const Error& why);

    Loop& loop_;
    bool possible_;
    Hooks hooks_;
    MoveForm form_ = MoveForm::stop_and_copy;
    Stage stage_ = Stage::precopy;
    std::unique_ptr<PrecopyStore> store_;  // until all is in place
    uint64_t store_put_ = 0;
    Timer store_timer_;
    std::unique_ptr<PageFileRead> file_;
    std::unique_ptr<PagePlace> place_;
    Watch watch_;
    uint64_t acknowledged_ = 0;
};

}  // namespace souk
