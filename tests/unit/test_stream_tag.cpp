// SPDX-License-Identifier: GPL-2.0-or-later
// An image stream has a tag. A stream for another job, epoch, node or user, or one made without the
// key, is refused, even if its digests are right.
#include "checkpoint/stream_tag.hpp"

#include <functional>

#include "checkpoint/stream.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::TempDir;

ImageSeal seal() {
    ImageSeal s;
    s.key = std::string(StreamTag::key_bytes, 'k');
    s.nonce = std::string(StreamTag::nonce_bytes, 'n');
    s.job = {"n1", 7};
    s.from = {3};
    s.to = {4};
    s.source = "n2";
    s.destination = "n3";
    s.uid = 1000;
    s.gid = 100;
    return s;
}

Manifest of_job() {
    Manifest m;
    m.job = seal().job;
    m.epoch = seal().from;
    m.machine = {"x86_64", "6.18.44", "4.2.1", 4096, "avx fpu sse2"};
    return m;
}

Fd image_with(const TempDir& parent, const std::string& name, const std::string& pages) {
    Fd directory = *create_image(parent.fd.get(), name);
    ck_assert(create_file(directory.get(), "core-2.img", "small").has_value());
    ck_assert(create_file(directory.get(), "pages-1.img", pages).has_value());
    return directory;
}

// The bytes that a source sends. Without a seal it sends like a source that has no key.
std::string stream_with(int directory, const ImageSeal* with, size_t sent_at_once = 100'000) {
    auto reader = ImageReader::open(directory, of_job());
    ck_assert(reader.has_value());
    if (with) reader->tag_with(std::move(*StreamTag::make(*with)));
    std::string all;
    for (;;) {
        const auto piece = reader->piece();
        ck_assert(piece.has_value() && piece->size() <= stream_piece_max);
        if (piece->empty()) return all;
        const size_t n = std::min(piece->size(), sent_at_once);
        all += piece->substr(0, n);
        reader->sent(n);
    }
}

// Why the destination refuses it; empty: it takes it.
std::string refusal(const TempDir& parent, const std::string& stream, const ImageSeal& wants,
                    size_t piece = 16'384) {
    const Fd directory = *create_image(parent.fd.get(), "copy");
    auto writer = *ImageWriter::open(directory.get());
    writer.want_tag(std::move(*StreamTag::make(wants)));
    for (size_t at = 0; at < stream.size(); at += piece)
        if (const Status s = writer.take(std::string_view(stream).substr(at, piece)); !s)
            return s.error().message;
    return writer.done() ? "" : "not done";
}

constexpr const char* another =
    "image stream: it was not made for this job, epoch, node and user by the node that its home "
    "named";

START_TEST(an_image_with_its_tag_is_taken_however_it_is_cut) {
    const TempDir parent;
    const ImageSeal s = seal();
    const Fd image = image_with(parent, "image", std::string(600'000, 'p'));
    for (const size_t cut : {size_t{1'000}, size_t{4'095}, stream_piece_max}) {
        const std::string stream = stream_with(image.get(), &s, cut);
        for (const size_t piece : {size_t{13}, size_t{16'384}, stream.size()})
            ck_assert_text(refusal(parent, stream, s, piece), "");
    }
}
END_TEST

START_TEST(an_image_of_one_without_the_key_is_refused_though_its_digests_are_right) {
    const TempDir parent;
    const ImageSeal s = seal();
    const Fd image = image_with(parent, "image", "these pages");
    const Fd forged = image_with(parent, "forged", "other pages");
    const std::string good = stream_with(image.get(), &s),
                      plain = stream_with(forged.get(), nullptr);
    ck_assert_text(refusal(parent, plain, s), "not done");
    // The stream without a seal gets the tag of the good one at its end.
    ck_assert_text(refusal(parent, plain + good.substr(good.size() - 32), s), another);
    ImageSeal guess = s;
    guess.key[31] ^= 1;
    ck_assert_text(refusal(parent, stream_with(image.get(), &guess), s), another);
    ck_assert_text(refusal(parent, good + "more", s), "image stream: bytes after its end");
    ck_assert_text(refusal(parent, good.substr(0, good.size() - 1), s), "not done");
}
END_TEST

START_TEST(a_tag_is_of_one_job_epoch_node_user_and_transfer) {
    const TempDir parent;
    const Fd image = image_with(parent, "image", "pages");
    const ImageSeal s = seal();
    const std::string stream = stream_with(image.get(), &s);
    const std::function<void(ImageSeal&)> changes[] = {
        [](ImageSeal& o) { o.job.seq = 8; },
        [](ImageSeal& o) { o.job.home = "n4"; },
        [](ImageSeal& o) { o.from = {2}; },
        [](ImageSeal& o) { o.to = {5}; },
        [](ImageSeal& o) { o.source = "n4"; },
        [](ImageSeal& o) { o.destination = "n4"; },
        [](ImageSeal& o) { o.uid = 0; },
        [](ImageSeal& o) { o.gid = 0; },
        [](ImageSeal& o) { o.nonce[0] ^= 1; },
        [](ImageSeal& o) { std::swap(o.source, o.destination); },
    };
    for (const auto& change : changes) {
        ImageSeal other = s;
        change(other);
        ck_assert_text(refusal(parent, stream, other), another);
    }
}
END_TEST

START_TEST(no_flipped_bit_passes) {
    const TempDir parent;
    const ImageSeal s = seal();
    const Fd image = image_with(parent, "image", "pages of a job");
    const std::string stream = stream_with(image.get(), &s);
    for (size_t at = 0; at < stream.size(); ++at) {
        std::string bad = stream;
        bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
        ck_assert_msg(!refusal(parent, bad, s).empty(), "byte %zu", at);
    }
}
END_TEST

START_TEST(each_move_has_a_key_of_its_own) {
    const std::string secret(32, 's');
    const JobId job{"n1", 7};
    const std::string key = image_key(secret, job, {4});
    ck_assert_uint_eq(key.size(), StreamTag::key_bytes);
    ck_assert(key == image_key(secret, job, {4}));
    ck_assert(key != image_key(secret, job, {5}));
    ck_assert(key != image_key(secret, {"n1", 8}, {4}));
    ck_assert(key != image_key(std::string(32, 't'), job, {4}));
    ImageSeal s = seal();
    s.key.pop_back();
    ck_assert(!StreamTag::make(s).has_value());
}
END_TEST
}  // namespace

UNIT_SUITE(stream_tag, an_image_with_its_tag_is_taken_however_it_is_cut,
           an_image_of_one_without_the_key_is_refused_though_its_digests_are_right,
           a_tag_is_of_one_job_epoch_node_user_and_transfer, no_flipped_bit_passes,
           each_move_has_a_key_of_its_own);

}  // namespace souk
