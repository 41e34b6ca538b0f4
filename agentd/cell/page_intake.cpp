// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/page_intake.hpp"

#include <fcntl.h>
#include <poll.h>

#include "checkpoint/page_sink.hpp"

namespace souk {
namespace {

constexpr uint64_t acknowledge_bytes = 256 * 1024;
constexpr uint64_t slice_bytes = 1 << 20, store_slack_bytes = 64 << 20;

class SinkPlace final : public PagePlace {
  public:
    explicit SinkPlace(PageSink sink) : sink_(std::move(sink)) {}
    int fd() const override { return sink_.fd(); }
    Result<std::vector<PageRange>> on_readable() override { return sink_.on_readable(); }
    std::vector<int> new_uffds() override { return sink_.new_uffds(); }
    Status restored() override { return sink_.restored(); }
    Status put(const PageRange& range, std::string_view bytes) override {
        return sink_.put(range, bytes);
    }
    bool whole() const override { return sink_.whole(); }
    uint64_t bytes_put() const override { return sink_.bytes_put(); }

  private:
    PageSink sink_;
};

}  // namespace

Result<std::unique_ptr<PagePlace>> listen_for_faults(int image) {
    TRY_ASSIGN(const auto ranges, lazy_ranges(image));
    TRY_ASSIGN(PageSink sink, PageSink::open(image, ranges));
    return std::make_unique<SinkPlace>(std::move(sink));
}

// -------------------------------------------------------------------------------------------------
// ahead of the image

Status PageIntake::expect_precopy(uint64_t bytes) {
    if (!possible_) return fail("this node cannot take memory past an image");
    TRY(room_precopy(bytes));
    // it may grow meanwhile
    store_ = std::make_unique<PrecopyStore>(bytes + bytes / 2 + store_slack_bytes);
    return {};
}

Status PageIntake::take_precopy(const PageRange& range, std::string_view bytes) {
    return store_ && stage_ == Stage::precopy ? store_->put(range, bytes)
                                              : fail("no memory is expected any more");
}

void PageIntake::precopy_lost() {
    if (stage_ == Stage::precopy) store_.reset();
}

// -------------------------------------------------------------------------------------------------
// the image is here

Status PageIntake::begin(int image, int pages, const Manifest& manifest, const DiskKey& key) {
    stage_ = Stage::faults;
    for (const ImageFile& file : manifest.files) {
        if (file.name != page_file_name) continue;
        if (!possible_)
            return fail("its memory cannot be put in place on this machine: souk doctor says why");
        TRY_ASSIGN(Fd memory, open_at(pages, page_file_name, O_RDONLY | O_NOFOLLOW));
        TRY_ASSIGN(auto ranges, lazy_ranges(image));
        if (key) {
            TRY_ASSIGN(auto encrypted, EncryptedReader::open(std::move(memory), file, key));
            TRY_ASSIGN(file_, PageFileRead::open(loop_, std::move(encrypted), std::move(ranges)));
        } else {
            TRY_ASSIGN(file_, PageFileRead::open(loop_, std::move(memory), std::move(ranges),
                                                 file.digest));
        }
        form_ = MoveForm::pages_first;
    }
    return {};
}

// The image says what of the store is to be used; without such a word nothing is.
Status PageIntake::use_precopy(int image) {
    stage_ = Stage::faults;
    const auto list = form_ == MoveForm::stop_and_copy
                          ? Result<std::string>(fail(""))
                          : souk::read_file(image, precopy_file_name, precopy_file_bytes_max);
    if (!list) return store_.reset(), Status{};
    if (!store_) return fail("the memory that was sent ahead is not here any more");
    TRY_ASSIGN(PrecopyList used, decode_precopy(*list));
    return store_->use(std::move(used));
}

Status PageIntake::listen(int image) {
    if (form_ == MoveForm::stop_and_copy) return {};
    TRY_ASSIGN(place_, hooks_.place(image));
    TRY_ASSIGN(watch_, loop_.watch(place_->fd(), POLLIN, [this](short) { faults(); }));
    return {};
}

// -------------------------------------------------------------------------------------------------
// pages

void PageIntake::faults() {
    auto wishes = place_->on_readable();
    if (!wishes) return fail_with(wishes.error());
    for (const int uffd : place_->new_uffds()) {
        if (form_ != MoveForm::post_copy) continue;
        if (const Status kept = hooks_.keep(uffd); !kept)
            return fail_with({0, "its capsule cannot keep its memory: " + kept.error().message});
    }
    serve(*wishes);
    if (place_ && place_->whole() && stage_ != Stage::whole && !file_) is_whole();
}

// Pages that a process waits for are asked for at once; pages that were put are acknowledged later.
void PageIntake::serve(const std::vector<PageRange>& wishes) {
    if (file_) {
        for (const PageRange& wish : wishes) {
            auto read = file_->read(wish, [this](const PageRange& range, std::string_view bytes) {
                return place_->put(range, bytes);
            });
            if (!read) return fail_with(read.error());
        }
        return;
    }
    const auto others = store_ ? serve_from_store(wishes) : wishes;
    if (!others) return fail_with(others.error());
    const bool any = stage_ >= Stage::any;
    const uint64_t put = put_of_source();
    if (others->empty() && !(any && put - acknowledged_ >= acknowledge_bytes)) return;
    acknowledged_ = put;
    hooks_.want(any, acknowledged_, *others);
}

Status PageIntake::put(const PageRange& range, std::string_view bytes) {
    if (!incomplete()) return {};
    if (auto put = place_->put(range, bytes); !put) {
        fail_with(put.error());
        return put;
    }
    faults();  // also what came up while they were put
    return {};
}

void PageIntake::restored() {
    faults();  // the last userfaultfd may still lie in the socket
    if (auto all = place_->restored(); !all) return fail_with(all.error());
    stage_ = Stage::any;
    if (file_) return read_file();
    if (form_ == MoveForm::post_copy) hooks_.may_run();
    if (place_->whole()) return is_whole();
    acknowledged_ = put_of_source();
    hooks_.want(true, acknowledged_, {});
    if (store_) store_timer_ = loop_.after(Nanos{}, [this] { place_store(); });
}

void PageIntake::read_file() {
    file_->start(
        [this](const PageRange& range, std::string_view bytes) -> Status {
            TRY(place_->put(range, bytes));
            faults();  // also what came up while they were put
            return {};
        },
        [this](const Status& all) {
            file_.reset();
            if (!all) return fail_with(all.error());
            if (!place_->whole()) return fail_with({0, "its image lacks memory"});
            is_whole();
        });
}

// In slices, so that faults and what comes out of the frozen job have their turn.
void PageIntake::place_store() {
    for (uint64_t done = 0; done < slice_bytes;) {
        if (!store_ || !incomplete()) return;
        const auto piece = store_->next();
        if (!piece) return fail_with(piece.error());
        if (piece->range.pages == 0) return;
        if (auto put = place_->put(piece->range, piece->bytes); !put) return fail_with(put.error());
        store_put_ += piece->bytes.size();
        done += piece->bytes.size();
        faults();
    }
    store_timer_ = loop_.after(Nanos{}, [this] { place_store(); });
}

// Puts those pages that the store has; the rest is for the source.
Result<std::vector<PageRange>> PageIntake::serve_from_store(const std::vector<PageRange>& wishes) {
    std::vector<PageRange> others;
    for (const PageRange& wish : wishes) {
        TRY_ASSIGN(const PrecopyStore::Piece piece, store_->at(wish));
        if (piece.range.pages == 0) {
            others.push_back(wish);
            continue;
        }
        TRY(place_->put(piece.range, piece.bytes));
        store_put_ += piece.bytes.size();
    }
    return others;
}

// -------------------------------------------------------------------------------------------------
// its end

void PageIntake::is_whole() {
    watch_.close();
    if (form_ == MoveForm::post_copy) hooks_.let_go();
    store_timer_.cancel();
    store_.reset();
    stage_ = Stage::whole;  // the place stays until CRIU has said its last word to it
    hooks_.whole();
}

// The userfaultfds stay until the capsule is gone: without them missing memory would read as zeros.
void PageIntake::fail_with(const Error& why) {
    watch_.close();
    store_timer_.cancel();
    if (file_) file_->stop();
    hooks_.failed(why);
}

void PageIntake::job_runs() {
    if (stage_ == Stage::whole) place_.reset();
}

void PageIntake::end() {
    watch_.close();
    store_timer_.cancel();
    if (file_) file_->stop();  // it may be who says so, and goes with this object
    place_.reset();
    store_.reset();
}

}  // namespace souk
