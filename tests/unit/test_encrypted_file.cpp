// SPDX-License-Identifier: GPL-2.0-or-later
// Images that lie encrypted on a disk (checkpoint/encrypted_file.hpp): what is read back is what
// was written, or is refused before a byte of it is used.
#include "checkpoint/encrypted_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>

#include "checkpoint/stream.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

constexpr size_t chunk = ChunkCipher::chunk_bytes, tag = ChunkCipher::tag_bytes;
const JobId job{"n1", 7};
const std::string secret(DiskKey::secret_bytes, 's');

std::string random_text(size_t bytes) {
    Rng rng(bytes + 1);
    std::string text(bytes, '\0');
    for (char& c : text) c = static_cast<char>(rng.next());
    return text;
}

DiskKey a_key(Epoch epoch = {3}) { return *DiskKey::make(secret, job, epoch); }

Fd made(const TempDir& dir, const char* name) {
    return *open_at(dir.fd.get(), name, O_RDWR | O_CREAT | O_TRUNC, 0600);
}

// Written in pieces of that length.
ImageFile write(const TempDir& dir, const char* name, const DiskKey& key, const std::string& text,
                size_t piece) {
    auto w = *EncryptedWriter::open(made(dir, name), name, key, text.size());
    for (size_t at = 0; at < text.size(); at += piece) OK(w.add(text.substr(at, piece)));
    const auto file = w.end();
    OK(file);
    return *file;
}

Result<std::string> read(const TempDir& dir, const ImageFile& file, const DiskKey& key) {
    TRY_ASSIGN(Fd fd, open_at(dir.fd.get(), file.name, O_RDONLY));
    TRY_ASSIGN(EncryptedReader r, EncryptedReader::open(std::move(fd), file, key));
    std::string text(r.bytes(), '\0');
    TRY(r.read(0, text.data(), text.size()));
    return text;
}

std::string bytes_of(const TempDir& dir, const char* name) {
    return *read_file(dir.fd.get(), name, 64 << 20);
}

START_TEST(every_length_comes_back_and_nothing_of_it_is_on_the_disk) {
    const TempDir dir;
    const DiskKey key = a_key();
    for (const size_t bytes : {size_t{0}, size_t{1}, size_t{15}, size_t{4096}, chunk - 1, chunk,
                               chunk + 1, 2 * chunk, 3 * chunk + 77}) {
        const std::string text = random_text(bytes);
        const ImageFile file = write(dir, "f", key, text, bytes > chunk ? 100'000 : 7);
        ck_assert_uint_eq(file.bytes, ChunkCipher::stored_bytes(bytes));
        ck_assert_uint_eq(ChunkCipher::plain_bytes(file.bytes), bytes);
        ck_assert_uint_eq(bytes_of(dir, "f").size(), file.bytes);
        const auto back = read(dir, file, key);
        ck_assert(back && *back == text);
        for (size_t at = 0; at + 16 <= bytes; at += 1000)
            ck_assert(bytes_of(dir, "f").find(text.substr(at, 16)) == std::string::npos);
    }
}
END_TEST

START_TEST(any_part_is_read_by_itself) {
    const TempDir dir;
    const DiskKey key = a_key();
    const std::string text = random_text(3 * chunk + 5000);
    const ImageFile file = write(dir, "f", key, text, 1 << 20);
    auto r = *EncryptedReader::open(*open_at(dir.fd.get(), "f", O_RDONLY), file, key);
    Rng rng(9);
    for (int i = 0; i < 200; ++i) {
        const uint64_t at = rng.below(text.size()), n = rng.below(text.size() - at + 1);
        std::string part(n, '\0');
        OK(r.read(at, part.data(), n));
        ck_assert(part == text.substr(at, n));
    }
    char byte = 0;
    ck_assert(!r.read(text.size(), &byte, 1) && !r.read(UINT64_MAX, &byte, 1));
}
END_TEST

START_TEST(a_flipped_bit_of_any_chunk_or_tag_is_found) {
    const TempDir dir;
    const DiskKey key = a_key();
    const std::string text = random_text(3 * chunk + 100);
    const ImageFile file = write(dir, "f", key, text, 1 << 20);
    const std::string good = bytes_of(dir, "f");
    const uint64_t at_most = good.size();
    for (const uint64_t at :
         {uint64_t{0}, uint64_t{chunk - 1}, uint64_t{chunk}, uint64_t{2 * chunk + 5},
          uint64_t{3 * chunk + 99}, uint64_t{text.size()}, at_most - 1}) {
        std::string bad = good;
        bad[at] = static_cast<char>(bad[at] ^ 4);
        OK(create_file(dir.fd.get(), "f", bad));
        const auto refused = read(dir, file, key);
        ck_assert(!refused);
        ck_assert_text(refused.error().message, "image file f: damaged");
    }
}
END_TEST

START_TEST(swapped_chunks_a_shorter_file_and_another_name_are_found) {
    const TempDir dir;
    const DiskKey key = a_key();
    const std::string text = random_text(3 * chunk);
    ImageFile file = write(dir, "f", key, text, 1 << 20);
    const std::string good = bytes_of(dir, "f");
    // with their tags, and with a manifest that says so
    std::string swapped = good.substr(chunk, chunk) + good.substr(0, chunk) +
                          good.substr(2 * chunk, chunk) + good.substr(3 * chunk + tag, tag) +
                          good.substr(3 * chunk, tag) + good.substr(3 * chunk + 2 * tag);
    OK(create_file(dir.fd.get(), "f", swapped));
    Digest digest;
    digest.add(swapped.substr(3 * chunk));
    ImageFile said = file;
    said.digest = digest.hex();
    ck_assert(!read(dir, said, key));

    std::string shorter = good.substr(0, 2 * chunk) + good.substr(3 * chunk, 2 * tag);
    OK(create_file(dir.fd.get(), "f", shorter));
    ck_assert(read(dir, file, key).error().message.find("bytes, not") != std::string::npos);
    digest.reset();
    digest.add(shorter.substr(2 * chunk));
    said = {"f", shorter.size(), digest.hex()};
    ck_assert_text(read(dir, said, key).error().message, "image file f: damaged");

    OK(create_file(dir.fd.get(), "g", good));
    said = file;
    said.name = "g";
    ck_assert_text(read(dir, said, key).error().message, "image file g: damaged");
}
END_TEST

START_TEST(no_two_images_files_epochs_and_jobs_have_one_key) {
    const DiskKey one = a_key(), two = a_key();
    ck_assert(one.salt() != two.salt() && one.of_file("f") != two.of_file("f"));
    ck_assert(one.of_file("f") != one.of_file("g") && one.of_file("f") != one.tag("f"));
    const auto again = DiskKey::find(secret, job, {3}, one.salt());
    ck_assert(again && again->of_file("f") == one.of_file("f"));
    for (const auto& other : {DiskKey::find(secret, job, {4}, one.salt()),
                              DiskKey::find(secret, {"n1", 8}, {3}, one.salt()),
                              DiskKey::find(std::string(32, 't'), job, {3}, one.salt())})
        ck_assert(other && other->of_file("f") != one.of_file("f"));
    ck_assert(epoch_secret(secret, job, {3}) != epoch_secret(secret, job, {4}));
    ck_assert(epoch_secret("", job, {3}).empty() && !*DiskKey::make("", job, {3}));
    ck_assert(!DiskKey::make("short", job, {3}));
}
END_TEST

Manifest an_image(const TempDir& from, const TempDir& to, const DiskKey& key) {
    OK(create_file(from.fd.get(), "core-1.img", "the core"));
    OK(create_file(from.fd.get(), "dump.log", "what CRIU says"));
    OK(create_file(from.fd.get(), "pages-1.img", random_text(2 * chunk + 9)));
    Manifest m;
    m.job = job;
    m.epoch = {3};
    m.files = *encrypt_files(from.fd.get(), to.fd.get(), key, nullptr);
    m.ends = {1, 2, 3};
    sign_manifest(m, key);
    return m;
}

START_TEST(an_image_is_encrypted_where_it_lies_or_into_another_directory) {
    const DiskKey key = a_key();
    for (const bool same : {true, false}) {
        const TempDir from, other, plain;
        const TempDir& to = same ? from : other;
        const Manifest m = an_image(from, to, key);
        ck_assert_uint_eq(m.files.size(), 2);
        ck_assert(bytes_of(to, "core-1.img").find("core") == std::string::npos);
        ck_assert_uint_eq(list_dir(to.fd.get(), ".")->size(), 2);
        OK(create_file(to.fd.get(), manifest_name, encode_manifest(m)));
        OK(verify_image(to.fd.get()));
        OK(decrypt_files(to.fd.get(), m, key, plain.fd.get(), "pages-1.img"));
        ck_assert_text(bytes_of(plain, "core-1.img"), "the core");
        ck_assert_uint_eq(list_dir(plain.fd.get(), ".")->size(), 1);
        ck_assert_text(*read_encrypted(to.fd.get(), m, key, "core-1.img", 3), "the");
    }
}
END_TEST

START_TEST(a_manifest_says_what_it_is_and_another_key_or_word_is_refused) {
    const TempDir from, to;
    const DiskKey key = a_key();
    const Manifest m = an_image(from, to, key);
    const auto back = decode_manifest(encode_manifest(m));
    ck_assert(back && *back == m);
    OK(key_of_image(*back, secret, job, {3}));
    ck_assert(key_of_image(*back, "", job, {3}).error().message.find("not on this node") !=
              std::string::npos);
    const auto refused = [](const Manifest& changed, Epoch epoch = {3}) {
        const auto found = key_of_image(changed, secret, job, epoch);
        ck_assert(!found);
        ck_assert(found.error().message.find("was not made with the key of job n1.7") !=
                  std::string::npos);
    };
    refused(m, {4});
    for (int i = 0; i < 4; ++i) {
        Manifest changed = m;
        if (i == 0) changed.files.pop_back();
        if (i == 1) changed.files[0].digest[5] ^= 1;
        if (i == 2) (*changed.ends)[0] = 9;
        if (i == 3) changed.salt[0] = static_cast<char>(changed.salt[0] ^ 1);
        refused(changed);
    }
    Manifest plain = m;  // what lies there encrypted is no plain image
    plain.salt.clear();
    plain.tag.clear();
    plain.ends.reset();
    OK(create_file(to.fd.get(), manifest_name, encode_manifest(plain)));
    ck_assert(!verify_image(to.fd.get()));
}
END_TEST

START_TEST(an_encrypted_image_goes_out_plain_and_one_that_comes_is_encrypted) {
    const TempDir from, to, came;
    const DiskKey key = a_key(), next = *DiskKey::make(secret, job, {5});
    Manifest m = an_image(from, to, key);
    OK(create_file(to.fd.get(), manifest_name, encode_manifest(m)));
    Manifest needs;
    needs.job = job;
    needs.epoch = {3};
    ck_assert(!ImageReader::open(to.fd.get(), needs));
    auto reader = *ImageReader::open(to.fd.get(), needs, secret);
    auto writer = *ImageWriter::open(came.fd.get());
    writer.encrypt_with(next);
    for (;;) {
        const auto piece = reader.piece();
        OK(piece);
        if (piece->empty()) break;
        OK(writer.take(*piece));
        reader.sent(piece->size());
    }
    ck_assert(writer.done() && reader.manifest().salt.empty());
    Manifest stored = writer.manifest();
    ck_assert(stored.files != reader.manifest().files);
    sign_manifest(stored, next);
    ck_assert(bytes_of(came, "core-1.img").find("core") == std::string::npos);
    ck_assert_text(*read_encrypted(came.fd.get(), stored, next, "core-1.img", 100), "the core");
    ck_assert(*read_encrypted(came.fd.get(), stored, next, "pages-1.img", 1 << 20) ==
              random_text(2 * chunk + 9));

    // and nothing goes out of one that is damaged, but what comes before
    std::string bad = bytes_of(to, "core-1.img");
    bad[2] = static_cast<char>(bad[2] ^ 1);
    OK(create_file(to.fd.get(), "core-1.img", bad));
    auto damaged = *ImageReader::open(to.fd.get(), needs, secret);
    const auto refused = damaged.piece();
    ck_assert(!refused);
    ck_assert_text(refused.error().message, "image file core-1.img: damaged");
}
END_TEST

}  // namespace

UNIT_SUITE(encrypted_file, every_length_comes_back_and_nothing_of_it_is_on_the_disk,
           any_part_is_read_by_itself, a_flipped_bit_of_any_chunk_or_tag_is_found,
           swapped_chunks_a_shorter_file_and_another_name_are_found,
           no_two_images_files_epochs_and_jobs_have_one_key,
           an_image_is_encrypted_where_it_lies_or_into_another_directory,
           a_manifest_says_what_it_is_and_another_key_or_word_is_refused,
           an_encrypted_image_goes_out_plain_and_one_that_comes_is_encrypted);

}  // namespace souk::unit
