// SPDX-License-Identifier: GPL-2.0-or-later
// Pages that go along after the image: what CRIU leaves out of a lazy dump, what a restored process
// still misses, and how pages stand in the stream between two agents. Pure.
//
// An address in an image is where a page lay when the job was frozen. A process that runs before
// all its pages are there may move, drop or share (fork) what it misses meanwhile; MissingPages
// keeps account of it as userfaultfd(2)'s events tell: one object per address space, a copy of it
// for a child.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/pagemap_image.hpp"
#include "kernel/base/pages.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// The addresses of one address space whose pages have not come yet, in bytes, multiples of
// page_bytes.
class MissingPages {
  public:
    struct Piece {
        uint64_t start = 0, end = 0;  // now
        uint64_t image = 0;           // address of `start` in the image
        bool operator==(const Piece&) const = default;
    };
    bool empty() const { return pieces_.empty(); }
    uint64_t bytes() const;
    void add(uint64_t start, uint64_t end) { insert({start, end, start}); }
    // The piece from `address` to the end of what is missing there; an empty one if that is not
    // missing.
    Piece at(uint64_t address) const;
    // These addresses were unmapped, or given back with madvise(2).
    void drop(uint64_t start, uint64_t end);
    // mremap(2): what lay at `from` is at `to` now, and what was at `to` is gone.
    void move(uint64_t from, uint64_t to, uint64_t bytes);
    // Returns the missing pieces of an image range, at the addresses where they belong now. They
    // stay missing.
    std::vector<Piece> of_image(uint64_t image_start, uint64_t image_end) const;

  private:
    void insert(Piece piece);
    std::vector<Piece> cut(uint64_t start, uint64_t end);  // takes out, and returns

    std::map<uint64_t, Piece> pieces_;  // by start, disjoint
    bool moved_ = false;                // somewhere start != image
};

// Sections of the stream behind the manifest (checkpoint/stream.hpp has their head): pages, and the
// end of them.
inline constexpr uint32_t pages_kind = 3, pages_end_kind = 4;
inline constexpr size_t section_head_bytes = 16, pages_text_bytes = 24;
inline constexpr uint64_t section_pages_max = 60;  // with both heads below stream_piece_max
// Head and text of a section of `pages` pages (0: the end of all) into `to`, section_head_bytes +
// pages_text_bytes. The pages stand behind it already: their digest, and what they are digested as,
// is in the text.
void put_pages_head(char* to, const PageRange& range);

// The receiving side: bytes cut anywhere in, whole sections with the right digest out.
class PageSections {
  public:
    // `bytes` is valid during the call only. The end has pages == 0. An error of it ends take().
    using Handler = std::function<Status(const PageRange&, std::string_view bytes)>;
    explicit PageSections(Handler handler) : handler_(std::move(handler)) {}
    // After an error the object is of no more use.
    Status take(std::string_view bytes);

  private:
    Status hand_over(std::string_view bytes) const;

    Handler handler_;
    std::string section_;  // as far as it has come
    size_t need_ = section_head_bytes + pages_text_bytes;
    PageRange range_;
    uint64_t digest_ = 0;
    bool in_data_ = false;
};

}  // namespace souk
