// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/openssl.hpp"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/rand.h>

#include <ctime>

#include "kernel/sys/store/sha256.hpp"

namespace souk::trust {

tl::unexpected<Error> fail_openssl(std::string_view what) {
    const unsigned long code = ERR_peek_last_error();
    const char* const reason = code ? ERR_reason_error_string(code) : nullptr;
    ERR_clear_error();
    return fail(std::string(what) + ": " + (reason ? reason : "OpenSSL gives no reason"));
}

BioPtr reader_of(std::string_view bytes) {
    return BioPtr(BIO_new_mem_buf(bytes.data(), static_cast<int>(bytes.size())));
}

std::string text_of(BIO* memory) {
    char* data = nullptr;
    const long bytes = BIO_get_mem_data(memory, &data);
    return {data, static_cast<size_t>(bytes)};
}

std::string hex(std::string_view bytes) {
    std::string text;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += "0123456789abcdef"[byte >> 4];
        text += "0123456789abcdef"[byte & 15];
    }
    return text;
}

Result<std::string> from_hex(std::string_view digits) {
    constexpr std::string_view known = "0123456789abcdef";
    if (digits.size() % 2 != 0) return fail("an odd number of hexadecimal digits");
    std::string bytes;
    for (size_t i = 0; i < digits.size(); i += 2) {
        const size_t high = known.find(digits[i]), low = known.find(digits[i + 1]);
        if (high == known.npos || low == known.npos) return fail("no hexadecimal digits");
        bytes += static_cast<char>(high << 4 | low);
    }
    return bytes;
}

std::string sha256(std::string_view bytes) { return sha256_hex(bytes); }

Result<std::string> random_bytes(size_t count) {
    std::string bytes(count, '\0');
    if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
        return fail_openssl("random bytes");
    return bytes;
}

Result<std::string> random_secret(size_t bytes) {
    TRY_ASSIGN(const std::string random, random_bytes(bytes));
    return hex(random);
}

bool is_same_secret(std::string_view one, std::string_view other) {
    return !one.empty() && one.size() == other.size() &&
           CRYPTO_memcmp(one.data(), other.data(), one.size()) == 0;
}

std::string date_text(Nanos unix_time) {
    const time_t seconds = unix_time.ns / 1'000'000'000;
    tm parts{};
    char text[40] = "an unknown date";
    if (::gmtime_r(&seconds, &parts))
        ::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    return text;
}

}  // namespace souk::trust
