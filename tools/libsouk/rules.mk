# SPDX-License-Identifier: GPL-2.0-or-later
# libsouk.so: of srun and marketctl what another program needs; it shows souk.h alone.
SO_NUMBERS := $(shell sed -n 's/^.define SOUK_API_M[A-Z]* //p' tools/libsouk/souk.h)
SO_NAME   := libsouk.so.$(word 1,$(SO_NUMBERS))
SO        := $(BUILD)/lib/$(SO_NAME).$(word 2,$(SO_NUMBERS))
SO_OBJS   := $(call room_objects,tools/libsouk)
$(SO): $(SO_OBJS) $(BUILD)/obj/tools/srun/spec.o $(LIB) tools/libsouk/souk.map
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CXX) $(LDFLAGS) -shared -Wl,-soname,$(SO_NAME) $(if $(SAN),,-Wl,-z,defs) \
	  -Wl,--version-script=tools/libsouk/souk.map -o $@ $(filter %.o %.a,$^) \
	  -lprotobuf-c -luring -lssl -lcrypto
	@ln -sf $(@F) $(@D)/$(SO_NAME) && ln -sf $(@F) $(@D)/libsouk.so
bins: $(SO)
