# Part of memopt, under the Apache License v2.0 with LLVM Exceptions.
# See LICENSE for license information.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The models of architectures.py: small ones of the families that transformers, timm and torchvision define, and some
written here. `NAMES` lists them; `make(name)` gives a training step and its batch.
"""

from __future__ import annotations

import importlib.util

import torch
import torch.nn.functional as F
from torch import nn

BATCH, LENGTH, CLASSES, SEED = 4, 16, 10, 1

# What makes a configuration of transformers small; each is set where a family has it.
SMALL = {
    **dict.fromkeys("hidden_size d_model n_embd dim embedding_size emb_dim max_target_positions".split(), 32),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
                    "num_encoder_layers num_key_value_heads".split(), 2),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
                    "rotary_dim".split(), 4),
    **dict.fromkeys("intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff d_inner hidden_dim n_inner mlp_dim "
                    "max_position_embeddings n_positions".split(), 64),
    **dict.fromkeys("d_kv head_dim patch_size".split(), 8),
    "num_mel_bins": 16, "max_source_positions": 16, "image_size": 32, "vocab_size": 99, "num_labels": CLASSES,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False, "tie_word_embeddings": True,
}
TEXT = """albert bert big_bird biogpt bloom camembert codegen cohere convbert ctrl data2vec-text deberta deberta-v2
distilbert electra ernie esm falcon flaubert fnet funnel gemma gemma2 gemma3_text glm gpt2 gpt_bigcode gpt_neo gpt_neox
gptj granite helium ibert layoutlm llama mamba mega megatron-bert mistral mobilebert modernbert mpnet mpt nemotron
nystromformer olmo olmo2 openai-gpt opt persimmon phi phi3 qwen2 qwen3 qwen2_moe recurrent_gemma rembert roberta roformer
rwkv smollm3 splinter squeezebert stablelm starcoder2 xglm xlm xlm-roberta xlnet xmod yoso""".split()
PAIRS = "bart blenderbot fsmt led m2m_100 marian mbart mt5 mvp pegasus plbart prophetnet switch_transformers t5 umt5".split()
IMAGES = """beit convnext convnextv2 cvt data2vec-vision deit dinov2 focalnet levit mobilenet_v1 mobilenet_v2 mobilevit
mobilevitv2 poolformer pvt_v2 regnet resnet segformer swiftformer swin swinv2 vit vit_msn""".split()
SOUNDS = "audio-spectrogram-transformer data2vec-audio hubert sew unispeech wav2vec2 wav2vec2-conformer wavlm whisper".split()
SIZES = {  # families whose defaults the list above does not make small
    "albert": {"embedding_size": 16},
    "ctrl": {"dff": 64},
    "funnel": {"block_sizes": [1, 1], "d_head": 8, "num_decoder_layers": 1},
    "xlnet": {"d_head": 8},
    "mobilebert": {"hidden_size": 64, "true_hidden_size": 32, "intra_bottleneck_size": 32, "embedding_size": 32},
    "convbert": {"head_ratio": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "window_size": 4},
    "mamba": {"state_size": 4, "time_step_rank": 4},
    "fnet": {},
    "rwkv": {"attention_hidden_size": 32},
    "recurrent_gemma": {"attention_window_size": 8, "lru_width": 32, "block_types": ["recurrent", "attention"]},
    "qwen2_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 32,
    },
    "big_bird": {"attention_type": "original_full"},
    "modernbert": {"num_attention_heads": 4},
    "led": {"attention_window": 4},
    "gemma": {"num_key_value_heads": 1},
    "mpt": {"max_seq_len": 64},
    "glm": {"pad_token_id": 0},
    "xmod": {"default_language": "en_XX"},
    "convnext": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "image_size": 64},
    "convnextv2": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "image_size": 64},
    "cvt": {"embed_dim": [16, 24, 32], "num_heads": [1, 2, 4], "depth": [1, 1, 1]},
    "focalnet": {"embed_dim": 16, "depths": [1, 1], "patch_size": 4, "focal_levels": [2, 2], "focal_windows": [3, 3]},
    "levit": {
        "image_size": 64,
        "hidden_sizes": [32, 48, 64],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "patch_size": 16,
    },
    "mobilevit": {
        "hidden_sizes": [24, 32, 40],
        "neck_hidden_sizes": [8, 8, 16, 24, 32, 40, 64],
        "image_size": 64,
        "patch_size": 2,
    },
    "mobilevitv2": {"image_size": 64, "patch_size": 2, "width_multiplier": 0.25},
    "poolformer": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32]},
    "pvt_v2": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 1, 2, 4]},
    "regnet": {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "groups_width": 8},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "segformer": {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "num_attention_heads": [1, 1, 2, 4]},
    "swiftformer": {"depths": [1, 1, 1, 1], "embed_dims": [8, 16, 24, 32], "image_size": 64},
    "swin": {"embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "patch_size": 2, "window_size": 4},
    "swinv2": {"embed_dim": 16, "depths": [1, 2], "num_heads": [2, 4], "patch_size": 2, "window_size": 4},
    "mobilenet_v2": {"depth_multiplier": 0.35, "image_size": 64},
    "mobilenet_v1": {"depth_multiplier": 0.25, "image_size": 64},
    "audio-spectrogram-transformer": {"patch_size": 4, "max_length": 32, "frequency_stride": 4, "time_stride": 4},
    "whisper": {"max_source_positions": 16},
}
WAVES = {
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 4, 2),
    "conv_kernel": (10, 4, 3),
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "layerdrop": 0.0,
    "mask_time_prob": 0.0,
    "mask_feature_prob": 0.0,
    "apply_spec_augment": False,
    "conv_pos_kernel_size": 3,
    "num_buckets": 20,
}
TIMM = """beit_base_patch16_224:img botnet26t_256:256 cait_xxs24_224:img coat_tiny:img64 convit_tiny:img convmixer_768_32 convnext_atto crossvit_tiny_240:240
cspdarknet53 davit_tiny:64 deit3_small_patch16_224:img densenet121 dla34 dpn48b edgenext_xx_small efficientformer_l1:224 efficientformerv2_s0:224
efficientnet_b0 efficientvit_b0:64 efficientvit_m0:64 eva02_tiny_patch14_224:img28 fastvit_t8:64 focalnet_tiny_srf:64 gcvit_xxtiny:224 gernet_s ghostnet_050
halonet26t:256 hardcorenas_a hgnet_tiny hiera_tiny_224:224 hrnet_w18_small inception_next_atto:64 inception_resnet_v2:128 inception_v3:128 inception_v4:128
lambda_resnet26t:64 lcnet_050 levit_128s:224 mambaout_femto:64 maxvit_tiny_rw_224:img64 mixer_s32_224:img mixnet_s mobilenet_edgetpu_v2_xs
mobilenetv2_035 mobilenetv3_small_050 mobilenetv4_conv_small mobileone_s0 mobilevit_xxs:64 mobilevitv2_050:64 mvitv2_tiny:64 nasnetalarge:96 nest_tiny:img32
nextvit_small:64 nf_resnet26 nfnet_l0 pit_ti_224:img pnasnet5large:96 poolformer_s12 pvt_v2_b0:64 rdnet_tiny regnetx_002 regnety_002 repghostnet_050
repvgg_a0 repvit_m0_9:64 res2net50_26w_4s resmlp_12_224:img resnest14d resnet10t resnetv2_50 rexnet_100 samvit_base_patch16:img64 selecsls42
semnasnet_075 sequencer2d_s:img seresnet18 seresnextaa101d_32x8d shvit_s1:64 skresnet18 spnasnet_100 starnet_s1:64 swin_tiny_patch4_window7_224:img56
swinv2_cr_tiny_ns_224:img64 swinv2_tiny_window8_256:img64 tf_efficientnetv2_b0 tiny_vit_5m_224:224 tinynet_e tnt_s_patch16_224:img
tresnet_m twins_svt_small:64 vgg11 visformer_tiny:img vit_relpos_small_patch16_224:img vit_tiny_patch16_224:img vitamin_small_224:img volo_d1_224:img64
xception41:128 xcit_nano_12_p16_224:img convformer_s18:64 caformer_s18:64 gmlp_s16_224:img haloregnetz_b:224 eca_nfnet_l0 ese_vovnet19b_dw""".split()
TORCHVISION = """alexnet:96 convnext_tiny efficientnet_v2_s googlenet:96 maxvit_t:224 mnasnet0_5 mobilenet_v3_small resnext50_32x4d shufflenet_v2_x0_5
squeezenet1_1 swin_v2_t:64 vgg11_bn vit_b_32:img64 wide_resnet50_2 segmentation.fcn_resnet50 segmentation.deeplabv3_mobilenet_v3_large
segmentation.lraspp_mobilenet_v3_large video.r3d_18:clip video.mvit_v1_b:clip224 video.s3d:clip224 optical_flow.raft_small:pair""".split()


class Step(nn.Module):
    """A model and a loss that every kind of output has: cross-entropy of classes, or the logarithm of a mean square."""

    def __init__(self, net, by_name=False):
        super().__init__()
        self.net, self.by_name = net, by_name

    def forward(self, **batch):
        label = batch.pop("label", None)
        output = largest(self.net(**batch) if self.by_name else self.net(*batch.values()))
        if label is None:
            return torch.log1p(output.square().mean())  # grows slowly, so that no step is too far
        return F.cross_entropy(output.reshape(-1, output.shape[-1]), label.reshape(-1))


def largest(output):
    """The tensor that a loss is made of."""
    for key in ("logits", "last_hidden_state", "out"):
        found = output.get(key) if isinstance(output, dict) else getattr(output, key, None)
        if torch.is_tensor(found):
            return found
    while isinstance(output, (tuple, list)):
        output = output[-1] if torch.is_tensor(output[-1]) else output[0]
    return output


def tokens(*sizes, limit=99):
    return torch.randint(3, limit, sizes)


def small_config(family, kind):
    """The family's configuration with few and narrow layers, and nothing dropped."""
    import transformers
    given = SIZES.get(family, {})
    common = SMALL | (WAVES if kind == "sounds" else {})
    config = transformers.AutoConfig.for_model(family)
    computed = {key for key, value in vars(type(config)).items() if isinstance(value, property)}
    default = {key: value for key, value in config.to_dict().items() if key not in computed}
    # A list has an entry for each stage: numbers only take the place of numbers.
    fits = {key: value for key, value in common.items() if isinstance(default.get(key, ""), (int, float, tuple, type(None)))}
    fits = {key: value for key, value in fits.items() if not ("block_sizes" in given and "layers" in key)}
    config = transformers.AutoConfig.for_model(family, **(fits | given))
    for key, value in list(vars(config).items()):
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)
    return config


def from_transformers(family, kind):
    import transformers
    config = small_config(family, kind)
    size = (SMALL | SIZES.get(family, {}))["image_size"]
    batch = {"text": lambda: {"input_ids": tokens(BATCH, LENGTH)},
             "pairs": lambda: {"input_ids": tokens(BATCH, LENGTH), "decoder_input_ids": tokens(BATCH, LENGTH // 2)},
             "images": lambda: {"pixel_values": torch.randn(BATCH, 3, size, size)},
             "sounds": lambda: sound(family)}[kind]()
    tasks = {"text": ["CAUSAL_LM", "MASKED_LM", ""], "pairs": ["SEQ_TO_SEQ_CAUSAL_LM"], "images": ["IMAGE_CLASSIFICATION", ""],
             "sounds": ["AUDIO_CLASSIFICATION", "SPEECH_SEQ_2_SEQ", ""]}[kind]
    if (kind == "text" and type(config) in transformers.MODEL_FOR_MASKED_LM_MAPPING) or "decoder_input_ids" in batch:
        tasks = tasks[-2:]  # these are encoders first, or have a decoder
    mappings = [getattr(transformers, f"MODEL_FOR_{task}_MAPPING" if task else "MODEL_MAPPING") for task in tasks]
    task, mapping = next((task, mapping) for task, mapping in zip(tasks, mappings) if type(config) in mapping)
    make_net = mapping[type(config)]
    net = (make_net[0] if isinstance(make_net, tuple) else make_net)(config)
    if not task:
        return Step(net, by_name=True), batch
    with torch.no_grad():
        shape = largest(net(**batch)).shape
    return Step(net, by_name=True), dict(batch, label=torch.randint(0, shape[-1], shape[:-1]))


def sound(family):
    if family == "whisper":
        return {"input_features": torch.randn(BATCH, 16, 32), "decoder_input_ids": tokens(BATCH, LENGTH // 2)}
    if family == "audio-spectrogram-transformer":
        return {"input_values": torch.randn(BATCH, 32, 16)}
    return {"input_values": torch.randn(BATCH, 2000)}


def images(make, size, **options):
    """The net with ten classes, and images of a size that it takes: img says that it is told, clip that there are frames."""
    told, clip, pair = "img" in size, size.startswith("clip"), size == "pair"
    pixels = int("".join(filter(str.isdigit, size)) or (32 if told else 64 if not clip else 32))
    net = make(**({"img_size": pixels} if told else {}), **options)
    if pair:
        return net, {"first": torch.randn(1, 3, 128, 128), "second": torch.randn(1, 3, 128, 128)}
    frames = [16 if pixels == 224 else 8] if clip else []
    return net, {"image": torch.randn(2 if pixels >= 224 else BATCH, 3, *frames, pixels, pixels)}


def from_timm(entry):
    import timm

    name, _, size = entry.partition(":")
    net, batch = images(lambda **options: timm.create_model(name, num_classes=CLASSES, **options), size)
    return Step(net), dict(batch, label=torch.randint(0, CLASSES, (len(batch["image"]),)))


def from_torchvision(entry):
    import torchvision

    name, _, size = entry.partition(":")
    module = torchvision.models
    for part in name.split(".")[:-1]:
        module = getattr(module, part)
    options = {"weights": None} | ({"weights_backbone": None} if name.startswith("segmentation") else {})
    options |= {} if "raft" in name else {"num_classes": CLASSES}
    options |= {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    make = getattr(module, name.split(".")[-1])
    if "img" in size:
        net, batch = images(
            lambda img_size, **rest: make(
                **({"input_size": (img_size,) * 2} if name == "maxvit_t" else {"image_size": img_size}), **rest
            ),
            size,
            **options,
        )
    else:
        net, batch = images(make, size, **options)
    return Step(net), batch


class Recommender(nn.Module):
    """DLRM (Naumov et al., 2019): embeddings of categories and a dense part, joined by their products."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, 8, mode="sum") for _ in range(4))
        self.bottom = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(18, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        parts = torch.stack([x] + [bag(sparse[:, i]) for i, bag in enumerate(self.bags)], 1)
        rows, columns = torch.tril_indices(5, 5, -1)
        return self.top(torch.cat([x, torch.bmm(parts, parts.mT)[:, rows, columns]], 1))


class Variational(nn.Module):
    """A convolutional variational autoencoder, whose noise is given."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(3, 8, 4, 2, 1),
            nn.BatchNorm2d(8),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1),
            nn.Flatten(),
            nn.Linear(1024, 16),
        )
        self.decoder = nn.Sequential(
            nn.Linear(8, 1024),
            nn.Unflatten(1, (16, 8, 8)),
            nn.ConvTranspose2d(16, 8, 4, 2, 1),
            nn.SiLU(),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
            nn.Sigmoid(),
        )

    def forward(self, image, noise):
        mean, logs = self.encoder(image).chunk(2, 1)
        made = self.decoder(mean + torch.exp(0.5 * logs) * noise)
        return F.mse_loss(made, image) - 5e-4 * torch.mean(1 + logs - mean.square() - logs.exp())


class Diffusion(nn.Module):
    """A small denoiser with time embedding, group norm, attention, up and down (Ho et al., 2020)."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.first, self.down, self.up = (
            nn.Conv2d(3, 16, 3, 1, 1),
            nn.Conv2d(16, 16, 3, 2, 1),
            nn.Conv2d(32, 16, 3, 1, 1),
        )
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(3))
        self.attention, self.last = nn.MultiheadAttention(16, 2, batch_first=True), nn.Conv2d(16, 3, 3, 1, 1)

    def forward(self, image, noise, level):
        angles = level[:, None] * torch.exp(-torch.arange(8) / 2.0)
        shift = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        keep = torch.cos(level)[:, None, None, None]
        x = self.first(keep * image + (1 - keep * keep).sqrt() * noise)
        y = F.silu(self.norms[0](self.down(x) + shift))
        flat = self.norms[1](y).flatten(2).mT
        y = y + self.attention(flat, flat, flat, need_weights=False)[0].mT.unflatten(2, y.shape[2:])
        y = self.up(torch.cat([F.interpolate(y, scale_factor=2.0, mode="nearest"), x], 1))
        return F.mse_loss(self.last(F.silu(self.norms[2](y))), noise)


class Recurrent(nn.Module):
    """Characters through an LSTM in both directions, and a GRU."""

    def __init__(self):
        super().__init__()
        self.table, self.first = nn.Embedding(99, 16), nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True)
        self.second, self.head = nn.GRU(24, 16, batch_first=True), nn.Linear(16, 99)

    def forward(self, text):
        return self.head(self.second(self.first(self.table(text))[0])[0])


class Graph(nn.Module):
    """Two layers of attention over the edges of a graph (Velickovic et al., 2018)."""

    def __init__(self):
        super().__init__()
        self.layers, self.scores = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, CLASSES)]), nn.ParameterList(
            [torch.randn(32) / 6, torch.randn(2 * CLASSES) / 5]
        )

    def forward(self, nodes, source, target):
        for layer, score in zip(self.layers, self.scores):
            x = layer(nodes)
            weight = F.leaky_relu(torch.cat([x[source], x[target]], 1) @ score, 0.2)
            most = weight.new_full((x.shape[0],), -1e9).scatter_reduce(0, target, weight, "amax")
            weight = torch.exp(weight - most[target].detach())
            total = weight.new_zeros(x.shape[0]).index_add(0, target, weight)
            nodes = torch.zeros_like(x).index_add(0, target, x[source] * (weight / (total[target] + 1e-9))[:, None])
        return nodes


def own(name):
    if name == "transformer":
        net = nn.Transformer(32, 4, 2, 2, 64, 0.0, batch_first=True)
        return Step(net), {"source": torch.randn(BATCH, LENGTH, 32), "target": torch.randn(BATCH, LENGTH, 32)}
    image = torch.rand(BATCH, 3, 32, 32)
    if name == "dlrm":
        return Step(Recommender()), {
            "dense": torch.randn(BATCH, 6),
            "sparse": torch.randint(0, 50, (BATCH, 4, 3)),
            "label": torch.randint(0, 2, (BATCH,)),
        }
    if name == "vae":
        return Step(Variational()), {"image": image, "noise": torch.randn(BATCH, 8)}
    if name == "diffusion":
        return Step(Diffusion()), {"image": image, "noise": torch.randn(BATCH, 3, 32, 32), "level": torch.rand(BATCH)}
    if name == "gat":
        return Step(Graph()), {
            "nodes": torch.randn(12, 8),
            "source": torch.randint(0, 12, (30,)),
            "target": torch.randint(0, 12, (30,)),
            "label": torch.randint(0, CLASSES, (12,)),
        }
    return Step(Recurrent()), {"text": tokens(BATCH, LENGTH), "label": tokens(BATCH, LENGTH)}


OWN = ["transformer", "dlrm", "vae", "diffusion", "gat", "recurrent"]
SOURCES = {"own": (OWN, own), "torchvision": (TORCHVISION, from_torchvision), "timm": (TIMM, from_timm)}
for _kind, _names in (("text", TEXT), ("pairs", PAIRS), ("images", IMAGES), ("sounds", SOUNDS)):
    SOURCES[_kind] = (_names, lambda name, kind=_kind: from_transformers(name, kind))
_NEEDS = {"own": "torch", "torchvision": "torchvision", "timm": "timm"}
NAMES = {
    f"{source}/{name.partition(':')[0]}": (make, name)
    for source, (names, make) in SOURCES.items()
    for name in names
    if importlib.util.find_spec(_NEEDS.get(source, "transformers"))
}


def make(name):
    """A step in training mode, without dropout, and its batch."""
    torch.manual_seed(SEED)
    make_model, entry = NAMES[name]
    step, batch = make_model(entry)
    for module in step.modules():
        for key in ("p", "drop_prob", "dropout"):
            if isinstance(getattr(module, key, None), float):
                setattr(module, key, 0.0)
    return step.train(), batch
