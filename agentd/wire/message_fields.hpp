// SPDX-License-Identifier: GPL-2.0-or-later
// The lists of fields (kernel/base/fields.hpp) of messages.hpp. Codec files alone include it.
#pragma once

#include "agentd/core/message_fields.hpp"
#include "agentd/wire/messages.hpp"
#include "agentd/wire/types.hpp"
#include "market/core/message_fields.hpp"

namespace souk {

namespace wire {
inline constexpr Rule stream_rule = rule::one_of(Stream::out, Stream::err);
inline constexpr Rule data_rule = rule::text(TextRule::bytes, stdio_bytes_max);
}  // namespace wire

SOUK_FIELDS(wire::StdioData,  //
            field("id", &wire::StdioData::id), field("epoch", &wire::StdioData::epoch, rule::count),
            field("stream", &wire::StdioData::stream, wire::stream_rule),
            field("offset", &wire::StdioData::offset, rule::count),
            field("data", &wire::StdioData::data, wire::data_rule));

SOUK_FIELDS(wire::StdioAck,  //
            field("id", &wire::StdioAck::id), field("epoch", &wire::StdioAck::epoch, rule::count),
            field("stream", &wire::StdioAck::stream, wire::stream_rule),
            field("offset", &wire::StdioAck::offset, rule::count),
            field("again", &wire::StdioAck::again));

SOUK_FIELDS(wire::StdioInput,  //
            field("id", &wire::StdioInput::id),
            field("epoch", &wire::StdioInput::epoch, rule::count),
            field("offset", &wire::StdioInput::offset, rule::count),
            field("data", &wire::StdioInput::data, wire::data_rule),
            field("eof", &wire::StdioInput::eof));

SOUK_FIELDS(wire::StdioInputAck,  //
            field("id", &wire::StdioInputAck::id),
            field("epoch", &wire::StdioInputAck::epoch, rule::count),
            field("offset", &wire::StdioInputAck::offset, rule::count));

SOUK_FIELDS(wire::StdioWinch,  //
            field("id", &wire::StdioWinch::id),
            field("epoch", &wire::StdioWinch::epoch, rule::count),
            field("rows", &wire::StdioWinch::rows, cells_rule),
            field("cols", &wire::StdioWinch::cols, cells_rule));

SOUK_FIELDS(wire::ImageBegin,  //
            field("id", &wire::ImageBegin::id),
            field("new_epoch", &wire::ImageBegin::new_epoch, rule::count),
            field("from_epoch", &wire::ImageBegin::from_epoch, rule::count),
            field("sender", &wire::ImageBegin::sender, rule::node),
            field("form", &wire::ImageBegin::form,
                  rule::one_of(MoveForm::stop_and_copy, MoveForm::post_copy)),
            field("nonce", &wire::ImageBegin::nonce, rule::text(TextRule::line, 24)));

SOUK_FIELDS(wire::PrecopyBegin,  //
            field("id", &wire::PrecopyBegin::id),
            field("new_epoch", &wire::PrecopyBegin::new_epoch, rule::count),
            field("sender", &wire::PrecopyBegin::sender, rule::node),
            field("bytes", &wire::PrecopyBegin::bytes, rule::count));

SOUK_FIELDS(wire::GatewayOffer);

SOUK_FIELDS(wire::GatewayAsk,  //
            field("number", &wire::GatewayAsk::number),
            field("node", &wire::GatewayAsk::node, rule::node),
            field("onward", &wire::GatewayAsk::onward, rule::address));

SOUK_FIELDS(wire::GatewayAnswer,  //
            field("number", &wire::GatewayAnswer::number),
            field("pass", &wire::GatewayAnswer::pass, rule::text(TextRule::line, 64)),
            field("why", &wire::GatewayAnswer::why),
            part("code", &wire::GatewayAnswer::why, &Cause::code, cause_rule));

SOUK_FIELDS(wire::GatewayCall,
            field("pass", &wire::GatewayCall::pass, rule::text(TextRule::line, 64)));

SOUK_FIELDS(wire::FilesBegin, field("id", &wire::FilesBegin::id),
            field("epoch", &wire::FilesBegin::epoch, rule::count));

SOUK_FIELDS(wire::PagesState,  //
            field("put", &wire::PagesState::put, rule::count),
            field("restored", &wire::PagesState::restored),
            field("wishes", &wire::PagesState::wishes, rule::at_most(wire::page_wishes_max)));

SOUK_FIELDS(wire::ImageResult,  //
            field("id", &wire::ImageResult::id),
            field("epoch", &wire::ImageResult::epoch, rule::count),
            field("ok", &wire::ImageResult::ok), field("why", &wire::ImageResult::why));

SOUK_FIELDS(wire::Submit,  //
            field("spec", &wire::Submit::spec, rule::required),
            field("terms", &wire::Submit::terms, rule::required),
            field("name", &wire::Submit::name, rule::text(TextRule::label, rule::name_bytes_max)),
            field("attach", &wire::Submit::attach), field("token", &wire::Submit::token),
            field("retry", &wire::Submit::retry),
            field("group", &wire::Submit::group, rule::unless_same),
            field("out_file", &wire::Submit::out_file, spec_path_rule),
            field("err_file", &wire::Submit::err_file, spec_path_rule),
            field("files_said", &wire::Submit::files_said),
            field("tries", &wire::Submit::tries, rule::unless_same));

SOUK_FIELDS(wire::Submitted, field("id", &wire::Submitted::id),
            field("waits", &wire::Submitted::waits), field("gangs", &wire::Submitted::gangs),
            field("classes", &wire::Submitted::classes),
            field("layouts", &wire::Submitted::layouts), field("near", &wire::Submitted::near));

SOUK_FIELDS(wire::Attach,  //
            field("id", &wire::Attach::id), field("resume", &wire::Attach::resume),
            element("stdout_offset", &wire::Attach::offset, 0, rule::count),
            element("stderr_offset", &wire::Attach::offset, 1, rule::count),
            field("watch", &wire::Attach::watch));

SOUK_FIELDS(wire::Attached,  //
            field("id", &wire::Attached::id), field("phase", &wire::Attached::phase, phase_rule),
            field("tty", &wire::Attached::tty),
            field("input_offset", &wire::Attached::input_offset, rule::count),
            element("stdout_offset", &wire::Attached::offset, 0, rule::count),
            element("stderr_offset", &wire::Attached::offset, 1, rule::count));

SOUK_FIELDS(wire::Output,  //
            field("stream", &wire::Output::stream, wire::stream_rule),
            field("offset", &wire::Output::offset, rule::count),
            field("data", &wire::Output::data, wire::data_rule));

SOUK_FIELDS(wire::OutputAck, field("stream", &wire::OutputAck::stream, wire::stream_rule),
            field("offset", &wire::OutputAck::offset, rule::count));

SOUK_FIELDS(wire::Input,  //
            field("offset", &wire::Input::offset, rule::count),
            field("data", &wire::Input::data, wire::data_rule), field("eof", &wire::Input::eof));

SOUK_FIELDS(wire::InputAck, field("offset", &wire::InputAck::offset, rule::count));

SOUK_FIELDS(wire::Winch, field("rows", &wire::Winch::rows, cells_rule),
            field("cols", &wire::Winch::cols, cells_rule));

SOUK_FIELDS(wire::Signal, field("number", &wire::Signal::number, rule::between(1, 64)));

SOUK_FIELDS(wire::Notice,
            field("kind", &wire::Notice::kind, rule::one_of(TellWhat::started, TellWhat::warning)),
            field("text", &wire::Notice::text));

SOUK_FIELDS(wire::Meter,  //
            field("phase", &wire::Meter::phase, phase_rule),
            field("where", &wire::Meter::where, rule::node_or_none),
            field("price", &wire::Meter::price, rule::price),
            field("cost", &wire::Meter::cost, rule::amount),
            field("cpus", &wire::Meter::cpus, rule::cpus), field("counts", &wire::Meter::counts));

SOUK_FIELDS(wire::Exit,  //
            field("wait_status", &wire::Exit::wait_status),
            field("cancelled", &wire::Exit::cancelled), field("why", &wire::Exit::why),
            field("summary", &wire::Exit::summary, rule::text(TextRule::line, 64 * 1024)));

}  // namespace souk
