// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/output.hpp"

#include <time.h>
#include <unistd.h>

#include <memory>

#include "kernel/base/ids.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/trust/openssl.hpp"
#include "tools/common/args.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

struct Reader {
    JobId id;
    bool follow = false;
    std::string lines;  // of the first answer
    uint64_t at[2] = {0, 0};
    bool first = true;
};

Status say_what_is_gone(const Reader& reader, int stream, uint64_t gone, uint64_t begin) {
    return write_all(STDERR_FILENO,
                     "marketctl: " + std::to_string(gone) + " bytes of " + reader.id.text() +
                         "'s " + (stream == 0 ? "stdout" : "stderr") + " up to byte " +
                         std::to_string(begin) +
                         " are not kept here: a terminal or a file has taken them\n",
                     "stderr");
}

// Writes a piece. Returns whether there is more of this stream already.
Result<bool> write_piece(Reader& reader, int stream, const Json& piece) {
    TRY_ASSIGN(const std::string bytes, trust::from_hex(piece.value("hex", std::string())));
    const auto begin = piece.value("begin", uint64_t{0}), from = piece.value("from", uint64_t{0}),
               end = piece.value("end", uint64_t{0});
    uint64_t& at = reader.at[stream];
    const bool last_lines = reader.first && !reader.lines.empty();
    if (from > at && !last_lines) TRY(say_what_is_gone(reader, stream, from - at, begin));
    TRY(write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, bytes,
                  stream == 0 ? "stdout" : "stderr"));
    at = from + bytes.size();
    return at < end && !bytes.empty();
}

CtlQuestion next_question(const std::shared_ptr<Reader>& reader);

Result<CtlQuestion> take(const std::shared_ptr<Reader>& reader, const Answer& answer) {
    constexpr timespec pause{0, 250'000'000};
    TRY_ASSIGN(const Json output, parse_object(answer));
    bool more = false;
    int stream = 0;
    for (const Json& piece : output.value("streams", Json::array())) {
        if (stream > 1) break;
        TRY_ASSIGN(const bool of_this, write_piece(*reader, stream++, piece));
        more |= of_this;
    }
    reader->first = false;
    if (!more && (!reader->follow || output.value("ended", true)))
        return CtlQuestion{"", {}, nullptr};
    if (!more) ::nanosleep(&pause, nullptr);
    return next_question(reader);
}

CtlQuestion next_question(const std::shared_ptr<Reader>& reader) {
    CtlQuestion question{"output", {reader->id.text()}, nullptr};
    if (reader->first && !reader->lines.empty())
        question.args.push_back("lines=" + reader->lines);
    else
        for (const int i : {0, 1})
            question.args.push_back((i == 0 ? "out=" : "err=") + std::to_string(reader->at[i]));
    question.then = [reader](const Answer& answer) { return take(reader, answer); };
    question.node = reader->id.home;
    question.bytes = true;
    return question;
}

}  // namespace

Result<CtlQuestion> output_question(std::span<char*> words, const OutputOptions& options) {
    if (words.empty()) return fail("output: a job's id is missing");
    if (words.size() > 1)
        return fail("output: unexpected argument '" + std::string(words[1]) + "'");
    auto reader = std::make_shared<Reader>();
    TRY_ASSIGN(reader->id, parse_job_id(words[0]));
    if (options.lines.find_first_not_of("0123456789") != std::string::npos)
        return fail("output: --lines takes a number, not '" + options.lines + "'");
    reader->follow = options.follow;
    reader->lines = options.lines;
    return next_question(reader);
}

}  // namespace souk::tools
