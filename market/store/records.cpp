// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/records.hpp"

#include "kernel/wire/field_codec.hpp"
#include "market/core/record_fields.hpp"
#include "market/store/records.pb-c.h"

namespace souk::wire {

static void check_price(market::PriceRecord& v, Check& c) {
    c.in<int32_t>("closed", v.closed, 0, v.minutes);
}
template <>
inline constexpr auto also_check<market::PriceRecord> = check_price;

SOUK_RECORD_CODEC(market::JobRecord, pb__market_job)
SOUK_RECORD_CODEC(market::NodeRecord, pb__market_node)
SOUK_RECORD_CODEC(market::AccountRecord, pb__market_account)
SOUK_RECORD_CODEC(market::UserRecord, pb__market_user)
SOUK_RECORD_CODEC(market::PriceRecord, pb__market_price)
SOUK_RECORD_CODEC(market::MetaRecord, pb__market_meta)

}  // namespace souk::wire
