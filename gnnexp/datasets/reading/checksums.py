"""SHA-256 of published files whose format has no checksum of its own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from gnnexp.errors import DataError, Problem

# kimiyoung/planetoid @ af6abf4, and EdisonLeeeee/GraphData @ f8022c2 for NELL. What is not listed is not compared.
PLANETOID = {
    "ind.cora.allx": "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543",
    "ind.cora.ally": "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71",
    "ind.cora.graph": "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d",
    "ind.cora.test.index": "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875",
    "ind.cora.tx": "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a",
    "ind.cora.ty": "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad",
    "ind.cora.x": "23cfa55d91c6f624233f5eb7b6e3f141f1bd2b2ae39608a63cf5d084bb27baab",
    "ind.cora.y": "94465c14eb53e04ca262198dcbb2521ee8af60fb3f3d546cd6ca24a511b0e7d1",
    "ind.citeseer.allx": "2ac30345d95c9ec933a817ee0bdd6a5f077f8c184a20e696910192d534414668",
    "ind.citeseer.ally": "f704b2d986dde6c2669934de1f3ae5696a6cf9455c0f6b2646a2d135ea0a1c95",
    "ind.citeseer.graph": "d79a4ef9d3e7169aee8946145f6b7306e35bc79bffad26346cfb94e10e9912a7",
    "ind.citeseer.test.index": "2af990671580b6b2df5d158d1038f8292e30c9cd821b5453f399659b25b723d4",
    "ind.citeseer.tx": "539a8906a2da97628d212f2fdd668c109a8b3f0d36574b59e5d3fd5b5303da21",
    "ind.citeseer.ty": "55e5bd1ba1e733a04598753ad1a8d57957f4b8f89e74519f41f4f4938767e4ce",
    "ind.citeseer.x": "d20de19150741e555de0ed037195630fc194114ebc7fd72ced62810148aa22f6",
    "ind.citeseer.y": "8ba87e515d8e3ee3cf52f6d2c5b86aa73f11ecad825a808455209ec26cd54924",
    "ind.pubmed.ally": "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e",
    "ind.pubmed.graph": "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9",
    "ind.pubmed.test.index": "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5",
    "ind.pubmed.tx": "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d",
    "ind.pubmed.ty": "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd",
    "ind.pubmed.x": "fbe9cb5c47200d1b7769a26e579be3b7130b556831f9d850e77c4c74f2599b33",
    "ind.pubmed.y": "e6c807633307a07ed659249006536a147c7999c797f11a2560752990181b41b3",
    "ind.nell.0.001.allx": "092de8541bfd3a6a9a5364ea73224e08c3b0605033c69dc926f26004a3e93681",
    "ind.nell.0.001.graph": "865faeed5d7037fb21122844ec09292b9c8b59710dcf2dc126cc13069a70365b",
    "ind.nell.0.001.test.index": "c546df8c960fc961b75d9566a1431c16d9a064725effdcd70a615ec0a31fe907",
    "ind.nell.0.001.tx": "93016916f57043f6402d9c15654328dbda143f8adcf2b1afd2638caff76808bf",
    "ind.nell.0.001.ty": "07a2a8a95063e14b05592322362011993ce95e7ddb87c8246ebd57607768a5c5",
    "ind.nell.0.001.x": "284de725538a6703f3b26ac8f252dc1c43a2fd0df46e78a618a2391a0c9ed63a",
    "ind.nell.0.001.y": "88926c6959052cffd51f1d4218b11c35403c0c43f21a52489fbec4676a6a205e",
}

# liun-online/HeCo @ 20e8ca2: text and plain arrays.
AMINER = {
    "labels.npy": "51a0500d6f74ee8745fc2d0f85c38dcdba064878980b890d5a347f29d68b531d",
    "pa.txt": "6e644c162db67840a414483890fe052fafa4deb4a3c5fa5a31e9bf7d87236885",
    "pr.txt": "04238431ee02107b88883b689c9920d77a5a718aca39b85cf7aa77f77aad1e5f",
    "test_20.npy": "78a07809ebe756e471ad076b09847fbc87baf2813afab5d5a7888f1d7fa5edbd",
    "test_40.npy": "6317d3a093fccec5c5daa3c4dd196c2281c9735d0d8204d38069bb5588415d79",
    "test_60.npy": "0849876c17c16b23b64d7a7bf044ab7ae1012f5d18832583bd854af5d9dd5705",
    "train_20.npy": "609d9d70352f3a3db56a6c3e0ea97a2a5b8d943494b284fc61e747e00cc3c04e",
    "train_40.npy": "8c96436b60a5b43cbda238a8c3bea7ace6d43e17652f3d8d81bf4effcfe15e36",
    "train_60.npy": "99a1d9510d177e6f68b68c7ffc4e69d7cb6118c53e8d343ac48ef4eeb2ae6ed5",
    "val_20.npy": "5ac76f040e62102026bc4202328b708fe8a6a1b8c99119d78eadbe7494db5eb8",
    "val_40.npy": "b91f42687b34b6d306dcbb94b7cd5b9428dceaf2e4fe391d9b86a92ba2a94b4d",
    "val_60.npy": "74fa03079f8117223a845764de01d66139ea9767385f8cfc58cc6d9b0d7cc65c",
}


def check_sha256(paths: Iterable[Path], published: Mapping[str, str]) -> None:
    """Compare files with their published digests, by name.

    Raises:
        DataError: all files that differ.
    """
    problems = []
    for path in paths:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        expected = published.get(path.name, found)
        if found != expected:
            mend = "get the file again, or set dataset.verify=false if this copy differs on purpose"
            problems.append(Problem(str(path), f"sha256 {found[:16]}…", f"{expected[:16]}… was published", mend))
    if problems:
        raise DataError(problems)
