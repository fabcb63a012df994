"""Operator families through the whole pipeline, second call (the compiled plan) against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import tatara  # noqa: E402
from results import same  # noqa: E402

F = torch.nn.functional

torch.manual_seed(0)
x = torch.randn(8, 16, 32)
w = torch.randn(32)
L = torch.randn(40, 32)
i = torch.randint(0, 40, (8, 16))
im = torch.randn(2, 6, 16, 16)
idx = torch.tensor([2, 0, 5])

# fmt: off
FUNCTIONS: dict[str, Callable[[], Any]] = {
'softmax':lambda:F.softmax(x,-1),'softmax0':lambda:F.softmax(x,0),'log_softmax':lambda:F.log_softmax(x,1),'ln':lambda:F.layer_norm(x,(32,),w,w),'rms':lambda:F.rms_norm(x,(32,),w),
'gn':lambda:F.group_norm(im,3,w[:6],w[:6]),'bn':lambda:F.batch_norm(im,w[:6],w[6:12].abs(),w[:6],w[:6]),'bnT':lambda:F.batch_norm(im,None,None,training=True),'sum':lambda:x.sum(1),'mean':lambda:x.mean((0,2)),'var':lambda:x.var(-1),'std_mean':lambda:torch.std_mean(x,0),'var_all':lambda:torch.var_mean(x),
'argmax':lambda:x.argmax(-1),'argmaxall':lambda:x.argmax(),'max':lambda:x.max(1),'min0':lambda:x.min(0),'amax':lambda:x.amax((0,1)),'any':lambda:(x>2).any(-1),'all':lambda:(x>-9).all(),'logsumexp':lambda:x.logsumexp(1),'cumsum':lambda:x.cumsum(1),'cumsum-1':lambda:x.cumsum(-1),'cumprod':lambda:x.cumprod(-1),'cummax':lambda:x.cummax(-1),'logcumsumexp':lambda:x.logcumsumexp(0),
'gelu':lambda:F.gelu(x),'silu':lambda:F.silu(x),'mish':lambda:F.mish(x),'glu':lambda:F.glu(x),'softplus':lambda:F.softplus(x),'elu':lambda:F.elu(x),'prelu':lambda:F.prelu(im,w[:6]),
'emb':lambda:F.embedding(i,L),'gather':lambda:x.gather(2,i[:,:,None]%32),'index':lambda:x[idx],'index2':lambda:x[:,idx,idx],'index_put':lambda:x.index_put((idx,),torch.zeros(())),'index_add':lambda:x.index_add(0,idx,x[:3]),'scatter_add':lambda:x.scatter_add(1,i[:,:,None]%16,x),'index_select':lambda:x.index_select(1,idx),'masked_fill':lambda:x.masked_fill(x>0,0.),'tril':lambda:x.tril(),'roll':lambda:x.roll(3,1),'flip':lambda:x.flip(1),
'cat':lambda:torch.cat([x,-x],-1),'stack':lambda:torch.stack([x,x],1),'repeat':lambda:x.repeat(2,1,2),'ri':lambda:x.repeat_interleave(2,1),'pad':lambda:F.pad(x,(1,2)),'padr':lambda:F.pad(im,(1,2,1,1),mode='reflect'),'padrep':lambda:F.pad(im,(1,2,1,1),mode='replicate'),'padc':lambda:F.pad(im,(1,2,1,1),mode='circular'),
'mp':lambda:F.max_pool2d(im,3,2,1),'mpi':lambda:F.max_pool2d(im,2,return_indices=True),'ap':lambda:F.avg_pool2d(im,3,2,1),'aap':lambda:F.adaptive_avg_pool2d(im,1),'aap3':lambda:F.adaptive_avg_pool2d(im,5),'up':lambda:F.interpolate(im,scale_factor=2),'upb':lambda:F.interpolate(im,size=(9,9),mode='bilinear'),
'ce':lambda:F.cross_entropy(x[:,0],i[:,0]%32),'ces':lambda:F.cross_entropy(x[:,0],i[:,0]%32,label_smoothing=.1),'mse':lambda:F.mse_loss(x,x+1),'bcel':lambda:F.binary_cross_entropy_with_logits(x,x.sigmoid()),'kl':lambda:F.kl_div(x,x.sigmoid()),
'linear':lambda:F.linear(x,L,None),'matmul':lambda:x@x.transpose(1,2),'einsum':lambda:torch.einsum('bij,kj->bik',x,L),'addmm':lambda:torch.addmm(w[:16],x[0],x[1].t()),'conv':lambda:F.conv2d(im,torch.ones(4,6,3,3),padding=1),'conv1':lambda:F.conv1d(x,torch.ones(4,16,3)),'sdpa':lambda:F.scaled_dot_product_attention(im,im,im),'sort':lambda:x.sort(-1),'topk':lambda:x.topk(3),'dropout':lambda:F.dropout(x,.5,False),'pixsh':lambda:F.pixel_shuffle(torch.cat([im,im],1)[:,:8],2),'cos':lambda:F.cosine_similarity(x,x+1,-1),'onehot':lambda:F.one_hot(i,40),
'tensordot':lambda:torch.tensordot(x,L,dims=([2],[1])),'norm':lambda:x.norm(dim=-1),'vnorm':lambda:torch.linalg.vector_norm(x,3,dim=(0,1)),'normalize':lambda:F.normalize(x),'half':lambda:F.softmax(x.half(),-1),'bf':lambda:F.layer_norm(x.bfloat16(),(32,)),'inst':lambda:F.instance_norm(im),'lrn':lambda:F.local_response_norm(im,2),'cdist':lambda:torch.cdist(x,x),'fft':lambda:torch.fft.rfft(x),'lu':lambda:torch.linalg.det(x[:,:,:16]),'unfold':lambda:F.unfold(im,3)}
# fmt: on


@pytest.mark.parametrize("name", FUNCTIONS)
def test_family(name: str) -> None:
    fn = FUNCTIONS[name]
    with torch.no_grad():
        expected = fn()
        compiled = tatara.compile(fn)
        compiled()
        got = compiled()
    wanted = expected if isinstance(expected, (tuple, list)) else (expected,)
    have = got if isinstance(got, (tuple, list)) else (got,)
    assert type(got) is type(expected)
    for a, b in zip(have, wanted, strict=True):
        tol = 1e-2 if b.dtype in (torch.half, torch.bfloat16) else 1e-4
        same(a, b, rtol=tol, atol=tol, equal_nan=True)


def test_batch_norm_training_updates_statistics() -> None:
    def fn(mean: torch.Tensor, var: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(im, mean, var, training=True)

    compiled = tatara.compile(fn)
    for _ in range(2):
        mine, theirs = (torch.zeros(6), torch.ones(6)), (torch.zeros(6), torch.ones(6))
        with torch.no_grad():
            torch.testing.assert_close(compiled(*mine), fn(*theirs), rtol=1e-4, atol=1e-4)
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a, b)


def test_dropout_in_evaluation_is_the_input() -> None:
    compiled = tatara.compile(lambda t: F.dropout(t, 0.5, False))
    with torch.no_grad():
        compiled(x)
        assert compiled(x).data_ptr() == x.data_ptr()
