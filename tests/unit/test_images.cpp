// SPDX-License-Identifier: GPL-2.0-or-later
// The image store and the stream, on a temporary directory, with damage of every kind.
#include <sys/stat.h>

#include "checkpoint/criu.hpp"
#include "checkpoint/stream.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/process/init_codec.hpp"
#include "tests/unit/capsule_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::TempDir;

void put(int directory, const std::string& name, const std::string& text) {
    const auto file = open_at(directory, name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ck_assert(file.has_value() &&
              ::write(file->get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
}

Manifest needs() {
    Manifest m;
    m.job = {"n1", 7};
    m.epoch = {3};
    m.machine = {"x86_64", "6.18.44", "4.2.1", 4096, "avx fpu sse2"};
    return m;
}

// An unsealed image of files of 0 bytes, a few, and some chunks.
Fd sample(int parent, const std::string& name) {
    Fd directory = *create_image(parent, name);
    Rng rng(5);
    std::string big(700'000, '\0');
    for (char& c : big) c = static_cast<char>(rng.next());
    put(directory.get(), "pages-1.img", big);
    put(directory.get(), "empty.img", "");
    put(directory.get(), "core-2.img", "small");
    put(directory.get(), "dump.log", "chatter");
    return directory;
}

std::string stream_of(int directory, size_t sent_at_once = 100'000) {
    auto reader = ImageReader::open(directory, needs());
    ck_assert(reader.has_value());
    std::string all;
    for (;;) {
        const auto piece = reader->piece();
        ck_assert(piece.has_value());
        ck_assert_uint_le(piece->size(), stream_piece_max);
        if (piece->empty()) break;
        const size_t n = std::min(piece->size(), sent_at_once);
        all += piece->substr(0, n);
        reader->sent(n);
    }
    return all;
}

// The offsets at which the sections of a stream begin, and its end.
std::vector<size_t> sections(const std::string& stream) {
    const auto number = [&](size_t at, int bytes) {
        uint64_t value = 0;
        for (int i = bytes; i-- > 0;)
            value = value << 8 | static_cast<unsigned char>(stream[at + static_cast<size_t>(i)]);
        return value;
    };
    std::vector<size_t> at = {0};
    while (at.back() < stream.size())
        at.push_back(at.back() + 16 + number(at.back() + 4, 4) + number(at.back() + 8, 8));
    ck_assert_uint_eq(at.back(), stream.size());
    return at;
}

// Error text of a stream that comes in pieces of some size, empty if it is taken whole.
std::string write_stream(int parent, const std::string& stream, uint64_t bytes_max = UINT64_MAX,
                         size_t piece = 16'384) {
    const Fd directory = *create_image(parent, "copy");
    auto writer = *ImageWriter::open(directory.get(), bytes_max);
    for (size_t at = 0; at < stream.size(); at += piece)
        if (const Status s = writer.take(std::string_view(stream).substr(at, piece)); !s)
            return s.error().message;
    if (!writer.done()) return "not done";
    const Status sealed = seal_image(parent, "copy", writer.manifest(), Durability::memory);
    return sealed ? "" : sealed.error().message;
}

std::string section(uint32_t kind, const std::string& text, uint64_t bytes) {
    std::string head;
    for (int i = 0; i < 4; ++i) head += static_cast<char>(kind >> (8 * i));
    for (int i = 0; i < 4; ++i) head += static_cast<char>(text.size() >> (8 * i));
    for (int i = 0; i < 8; ++i) head += static_cast<char>(bytes >> (8 * i));
    return head + text;
}

START_TEST(a_manifest_reads_back_as_it_was_and_no_damage_passes) {
    Manifest m = needs();
    m.files = {{"core-2.img", 5, std::string(32, 'a')},
               {"pages-1.img", 1ULL << 40, std::string(32, '0')}};
    const std::string text = encode_manifest(m);
    const auto back = decode_manifest(text);
    ck_assert(back.has_value() && *back == m);
    Rng rng(11);
    for (int i = 0; i < 3000; ++i) {
        std::string bad = text;
        if (i % 3 == 0)
            bad.resize(rng.below(bad.size()));
        else if (i % 3 == 1)
            bad[rng.below(bad.size())] ^= static_cast<char>(1 + rng.below(255));
        else
            bad.erase(rng.below(bad.size()), 1 + rng.below(5));
        if (bad != text) ck_assert(!decode_manifest(bad).has_value());
    }
}
END_TEST

START_TEST(an_image_streamed_to_another_directory_is_the_same_image) {
    const TempDir parent;
    const Fd directory = sample(parent.fd.get(), "image");
    const std::string stream = stream_of(directory.get());
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{4096}, stream.size(), size_t{16'384}})
        ck_assert_text(write_stream(parent.fd.get(), stream, UINT64_MAX, piece), "");
    const Fd copy = *open_image(parent.fd.get(), "copy");
    const auto verified = verify_image(copy.get());
    ck_assert_msg(verified.has_value(), "%s", verified ? "" : verified.error().message.c_str());
    Manifest expected = needs();
    expected.files = *digest_files(directory.get());
    ck_assert(*verified == expected);
    ck_assert(*read_file(copy.get(), "pages-1.img") == *read_file(directory.get(), "pages-1.img"));
    struct stat st;
    ck_assert(::fstat(copy.get(), &st) == 0 && (st.st_mode & 0777) == 0700);
    ck_assert(stream_of(copy.get(), 1000) == stream);  // a sealed image can be sent again
}
END_TEST

START_TEST(a_sealed_image_that_is_not_as_it_was_sealed_is_not_sent_on) {
    const TempDir parent;
    Manifest m = needs();
    m.machine.kernel = "the one that it was made on";
    m.files = *digest_files(sample(parent.fd.get(), "image").get());
    ck_assert(seal_image(parent.fd.get(), "image", m, Durability::memory).has_value());
    const Fd image = *open_image(parent.fd.get(), "image");
    const auto sent = [&]() -> std::string {
        auto reader = ImageReader::open(image.get(), needs());
        if (!reader) return reader.error().message;
        for (;;) {
            const auto piece = reader->piece();
            if (!piece) return piece.error().message;
            if (piece->empty()) return reader->manifest().machine.kernel;
            reader->sent(piece->size());
        }
    };
    ck_assert_text(sent(), m.machine.kernel);
    put(image.get(), "core-2.img", "smalL");
    ck_assert_text(sent(), "image file core-2.img: damaged");
    put(image.get(), "core-2.img", "small");
    put(image.get(), "extra.img", "");
    ck_assert_text(sent(), "image file extra.img: not in the manifest");
    ck_assert(::unlinkat(image.get(), "extra.img", 0) == 0);
    // what a crash has left of one that was to be added
    put(image.get(), frames_file_name, "frames");
    put(image.get(), new_manifest_name, "of then");
    ck_assert_text(sent(), m.machine.kernel);
    ck_assert(verify_image(image.get()).has_value() &&
              ::unlinkat(image.get(), frames_file_name, 0) == 0 &&
              ::unlinkat(image.get(), "empty.img", 0) == 0);
    ck_assert_text(sent(), "the image lacks files of its manifest");
    put(image.get(), manifest_name, "nonsense");
    ck_assert_text(sent(), "manifest: not an image of a job");
}
END_TEST

START_TEST(a_stream_that_is_cut_damaged_or_reordered_is_refused) {
    const TempDir parent;
    const std::string good = stream_of(sample(parent.fd.get(), "image").get());
    const std::vector<size_t> at = sections(good);
    const auto whole = [&](size_t i) { return good.substr(at[i], at[i + 1] - at[i]); };
    Rng rng(13);
    for (int i = 0; i < 250; ++i) {
        std::string bad = good;
        const size_t one = rng.below(at.size() - 1), other = rng.below(at.size() - 1),
                     byte = rng.below(good.size());
        switch (i % 5) {
            case 0: bad.resize(byte); break;
            case 1: bad[byte] ^= static_cast<char>(1 + rng.below(255)); break;
            case 2: bad.erase(at[one], at[one + 1] - at[one]); break;
            case 3: bad.insert(at[one], whole(other)); break;
            default:
                if (one < other)
                    bad = good.substr(0, at[one]) + whole(other) +
                          good.substr(at[one + 1], at[other] - at[one + 1]) + whole(one) +
                          good.substr(at[other + 1]);
        }
        if (bad != good) ck_assert_msg(!write_stream(parent.fd.get(), bad).empty(), "case %d", i);
    }
    ck_assert_text(write_stream(parent.fd.get(), good + "x"), "image stream: bytes after its end");
    ck_assert_text(write_stream(parent.fd.get(), good, 1000),
                   "image stream: larger than was agreed: No space left on device");
    for (const char* name : {"", ".", "..", "a/b", "/etc/passwd", "MANIFEST", "dump.log", "a b"})
        ck_assert_text(write_stream(parent.fd.get(), section(1, name, 0)),
                       "image stream: a bad file name");
    ck_assert_text(write_stream(parent.fd.get(), section(1, std::string(256, 'a'), 0)),
                   "image stream: a bad file name");
    ck_assert_text(write_stream(parent.fd.get(), section(3, "a", 0)),
                   "image stream: an unexpected section");
    ck_assert_text(write_stream(parent.fd.get(), section(2, "", 0)),
                   "image stream: manifest too long");
}
END_TEST

START_TEST(a_stored_image_with_any_file_changed_missing_or_added_is_refused_by_name) {
    const TempDir parent;
    Manifest m = needs();
    m.files = *digest_files(sample(parent.fd.get(), "image").get());
    ck_assert_uint_eq(m.files.size(), 3);
    ck_assert(!open_image(parent.fd.get(), "image").has_value());
    ck_assert(seal_image(parent.fd.get(), "image", m, Durability::disk).has_value());
    const Fd image = *open_image(parent.fd.get(), "image");
    ck_assert(verify_image(image.get()).has_value());
    put(image.get(), "core-2.img", "smalL");
    ck_assert_text(verify_image(image.get()).error().message, "image file core-2.img: damaged");
    put(image.get(), "core-2.img", "small and more");
    ck_assert_text(verify_image(image.get()).error().message,
                   "image file core-2.img: 14 bytes, not 5");
    put(image.get(), "core-2.img", "small");
    put(image.get(), "extra.img", "");
    ck_assert_text(verify_image(image.get()).error().message,
                   "image file extra.img: not in the manifest");
    ck_assert(::unlinkat(image.get(), "extra.img", 0) == 0 &&
              verify_image(image.get()).has_value());
    ck_assert(::unlinkat(image.get(), "empty.img", 0) == 0 &&
              !verify_image(image.get()).has_value());
    ck_assert(remove_image(parent.fd.get(), "image").has_value());
    ck_assert(list_dir(parent.fd.get(), ".")->empty());
    ck_assert(remove_image(parent.fd.get(), "image").has_value());
}
END_TEST

START_TEST(a_machine_that_lacks_what_the_job_needs_is_told_apart) {
    const Machine there = needs().machine;
    Machine here = there;
    here.cpu_features = "avx avx2 fpu sse2";
    ck_assert(can_take(here, there).has_value());
    ck_assert_text(can_take(there, here).error().message,
                   "the job's CPU has avx2, this one has not");
    here.cpu_features = "fpu sse2 sse3";
    ck_assert_text(can_take(here, there).error().message,
                   "the job's CPU has avx, this one has not");
    here.cpu_features = "avx avx2 fpu sse2";
    here.criu = "4.3";
    ck_assert_text(can_take(here, there).error().message,
                   "the job comes from CRIU 4.2.1, here is CRIU 4.3");
    const auto mine = this_machine("4.2.1");
    ck_assert(mine.has_value() && !mine->cpu_features.empty() &&
              can_take(*mine, *mine).has_value());
}
END_TEST

START_TEST(criu_errors_are_quoted_without_times_and_in_bounds) {
    const std::string log =
        "(00.001) Warn  (criu/a.c:1): nothing\n(00.002) Error (criu/util.c:1534): rlimit: Can't "
        "setup RLIMIT_NOFILE "
        "for self\n"
        "(00.003) Error (criu/sk.c:2): inet: Connected TCP\x01socket\n(00.003) Error "
        "(criu/sk.c:2): inet: Connected "
        "TCP\x01socket\n"
        "(00.004) Error (criu/b.c:3): " +
        std::string(500, 'x') + "\n(00.005) Error c\n(00.006) Error d\n";
    ck_assert_text(criu_error_lines(log, 2),
                   "Error (criu/sk.c:2): inet: Connected TCP socket; Error (criu/b.c:3): " +
                       std::string(220, 'x'));
    ck_assert_text(criu_error_lines("no news\n"), "");
}
END_TEST

START_TEST(only_expired_periodic_timers_are_found_in_a_files_image) {
    // file_entry{type 17, id, tfd{id, flags, fown{}, clockid, ticks, settime_flags, vsec, vnsec,
    // isec, insec}}
    const auto entry = [](char vsec, char vnsec, char isec, char insec) {
        const std::string timer =
            std::string("\x08\x05\x10\x02\x1a\x00\x20\x01\x28\x03\x30\x00", 12) + '\x38' + vsec +
            '\x40' + vnsec + '\x48' + isec + '\x50' + insec;
        const std::string file =
            std::string("\x08\x11\x10\x05\x62", 5) + static_cast<char>(timer.size()) + timer;
        return std::string{static_cast<char>(file.size()), 0, 0, 0} + file;
    };
    const std::string head("\x19\x43\x56\x54\x38\x31\x30\x56", 8);
    std::string image = head + entry(0, 5, 1, 0) + entry(0, 0, 0, 0);
    ck_assert(expired_timerfds(image)->empty());
    const size_t before = image.size();
    image += entry(0, 0, 1, 0) + entry(0, 0, 0, 9);
    const auto found = expired_timerfds(image);
    ck_assert_uint_eq(found->size(), 2);
    const size_t length = entry(0, 0, 1, 0).size();
    ck_assert_uint_eq((*found)[0], before + length - 5);
    ck_assert_uint_eq((*found)[1], before + 2 * length - 5);
    // no crash
    for (size_t n = 1; n < image.size(); ++n) (void)expired_timerfds(image.substr(0, n));
    ck_assert(!expired_timerfds(image.substr(0, image.size() - 1)).has_value());
    ck_assert(!expired_timerfds("").has_value());
}
END_TEST

START_TEST(records_of_souk_init_are_checked_before_they_are_believed) {
    const std::string good =
        encode_init_message(static_cast<souk_type>(SOUK_OUTPUT), 1, 0, 100, 0, "text");
    const auto event = decode_init_event(good);
    ck_assert(event.has_value() && event->kind == InitEventKind::output && event->offset == 100);
    ck_assert_text(event->bytes, "text");
    for (size_t n = 0; n < good.size(); ++n)
        ck_assert(!decode_init_event(good.substr(0, n)).has_value());
    ck_assert(!decode_init_event(good + "x").has_value());
    ck_assert(!decode_init_event(
                   encode_init_message(static_cast<souk_type>(SOUK_OUTPUT), 3, 0, 0, 0, "x"))
                   .has_value());
    ck_assert(!decode_init_event(encode_init_message(static_cast<souk_type>(SOUK_OUTPUT), 1, 0,
                                                     UINT64_MAX, 0, "x"))
                   .has_value());
    ck_assert(!decode_init_event(
                   encode_init_message(static_cast<souk_type>(SOUK_WELCOME), 0, 0, 0, 0, "x"))
                   .has_value());
    ck_assert(!decode_init_event(encode_init_message(SOUK_HELLO)).has_value());
    Rng rng(3);
    for (int i = 0; i < 20'000; ++i) {
        std::string bad = good;
        bad[rng.below(bad.size())] = static_cast<char>(rng.next());
        (void)decode_init_event(bad);
    }
    LaunchSpec spec = unit::shell("x");
    spec.argv.push_back(std::string("a\0b", 3));
    ck_assert(!encode_spec(spec).has_value());
}
END_TEST
}  // namespace

UNIT_SUITE(images, a_manifest_reads_back_as_it_was_and_no_damage_passes,
           an_image_streamed_to_another_directory_is_the_same_image,
           a_sealed_image_that_is_not_as_it_was_sealed_is_not_sent_on,
           a_stream_that_is_cut_damaged_or_reordered_is_refused,
           a_stored_image_with_any_file_changed_missing_or_added_is_refused_by_name,
           a_machine_that_lacks_what_the_job_needs_is_told_apart,
           criu_errors_are_quoted_without_times_and_in_bounds,
           only_expired_periodic_timers_are_found_in_a_files_image,
           records_of_souk_init_are_checked_before_they_are_believed);

}  // namespace souk
