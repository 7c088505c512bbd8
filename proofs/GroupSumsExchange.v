(* Sums of private outcomes by public groups under exchange: Delta_1 <= 2 p sum_o (u_o - l_o)
   and Delta_2^2 <= 2 p sum_o (u_o - l_o)^2, for p sets of groups and outcomes o. *)
From mathcomp Require Import all_ssreflect fingroup perm ssralg ssrnum ssrint zify.
Require Import Datasets Reach Features Exchange Tables GroupSums.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.Theory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(* Sums of which at most two groups change, by u1 and u2. *)
Lemma two_groups (G : finType) (A A' : option G) (u1 u2 w : int) :
  `|u1| <= w -> `|u2| <= w -> `|u1 + u2| <= w ->
  let change g := (if A == Some g then u1 else 0) + (if A' == Some g then u2 else 0) in
  \sum_g `|change g| <= 2%:Z * w /\ \sum_g change g ^+ 2 <= 2%:Z * w ^+ 2.
Proof.
move=> h1 h2 h12 change; have w0 : 0 <= w := le_trans (normr_ge0 _) h1.
have sq z : `|z| <= w -> z ^+ 2 <= w ^+ 2.
  by move=> h; rewrite -[z ^+ 2]ger0_norm ?sqr_ge0 // normrX ler_expn2r ?nnegrE.
(* the sum over all groups of a function that is zero outside group B *)
have single (B : option G) (h : G -> int) (b : int) : 0 <= b ->
    (forall g, B != Some g -> h g = 0) -> (forall g, B = Some g -> h g <= b) -> \sum_g h g <= b.
  move=> b0 zero le; case: B zero le => [g0|] zero le; last by rewrite big1 // => g _; apply: zero.
  rewrite (bigD1 g0) //= big1 ?addr0 => [|g ng]; first exact: le.
  by apply: zero; apply: contraNneq ng => -[->].
have dbl (z : int) : 2%:Z * z = z + z by lia.
case: (eqVneq A A') => [e|ne].
  split; rewrite dbl.
    apply: (@le_trans _ _ w); last by rewrite ler_addl.
    apply: (single A') => // g; rewrite /change e.
      by move=> /negbTE ->; rewrite addr0 normr0.
    by move=> ->; rewrite eqxx.
  apply: (@le_trans _ _ (w ^+ 2)); last by rewrite ler_addl sqr_ge0.
  apply: (single A'); first exact: sqr_ge0.
    by move=> g; rewrite /change e => /negbTE ->; rewrite addr0 expr0n.
  by move=> g; rewrite /change e => ->; rewrite eqxx; apply: sq.
pose part (B : option G) (z : int) g := if B == Some g then z else 0.
split.
  apply: (@le_trans _ _ (\sum_g (`|part A u1 g| + `|part A' u2 g|))).
    by apply: ler_sum => g _; apply: ler_norm_add.
  rewrite big_split dbl; apply: ler_add; [apply: (single A)|apply: (single A')] => // g;
    rewrite /part; try (by move=> /negbTE ->; rewrite normr0); by move=> ->; rewrite eqxx.
apply: (@le_trans _ _ (\sum_g (part A u1 g ^+ 2 + part A' u2 g ^+ 2))).
  apply: ler_sum => g _; rewrite /change /part.
  case: (eqVneq A (Some g)) => [eA|_]; last by rewrite add0r [0 ^+ 2]expr0n add0r.
  case: (eqVneq A' (Some g)) => [eA'|_]; last by rewrite addr0 [0 ^+ 2]expr0n addr0.
  by rewrite eA eA' eqxx in ne.
rewrite big_split dbl; apply: ler_add; [apply: (single A)|apply: (single A')];
  rewrite ?sqr_ge0 // => g; rewrite /part; try (by move=> /negbTE ->; rewrite expr0n);
  by move=> ->; rewrite eqxx; apply: sq.
Qed.

Section Exchange.
Variables (n : nat) (F B V N G : finType) (block : F -> B) (node : F -> V -> N).
Local Notation record := (record F V).
Local Notation tuple_in := (@tuple_in F B V N block node).
Local Notation dataset := (dataset record n).
Local Notation adjacent := (@adjacent n F B V N block node).
Implicit Types (X Y : dataset) (r : record).

(* A feature that is not published. *)
Definition unpublished f := forall v w : V, node f v = node f w.

(* An outcome is private if it depends on unpublished features only: then carriers keep theirs. *)
Definition private (out : record -> int) :=
  forall r r' : record, (forall f, unpublished f -> r f = r' f) -> out r = out r'.

(* The group of a record follows from its published tuple in block b; [None]: its outcome is missing,
   which is then public. *)
Definition contribution (b : B) (group : {ffun F -> option N} -> option G) (out : record -> int)
    X (i : 'I_n) : option (G * int) :=
  if group (tuple_in (X i) b) is Some g then Some (g, out (X i)) else None.

Section One.
Variables (b : B) (group : {ffun F -> option N} -> option G) (out : record -> int) (l u : int).
Hypothesis private_out : private out.
Let seen := contribution b group out.
Let group_of r := group (tuple_in r b).

Lemma group_sumE X g :
  group_sum (seen X) g = \sum_i (if group_of (X i) == Some g then out (X i) else 0).
Proof.
rewrite /group_sum big_mkcond; apply: eq_bigr => i _.
rewrite /counts_for /outcome /seen /contribution /group_of.
by case: (group _) => [g'|] //=; rewrite (inj_eq (@Some_inj _)).
Qed.

(* EXCHANGE, GROUP SUMS. One set of groups that follow from one published block, one private outcome in
   [l, u]: if X ~ Y, the sums differ by at most 2(u - l) in l1 and 2(u - l)^2 in squared l2. *)
Theorem exchange_group_sums X Y : l <= u ->
  (forall i, l <= out (X i) <= u) -> (forall i, l <= out (Y i) <= u) -> adjacent X Y ->
  \sum_g `|group_sum (seen X) g - group_sum (seen Y) g| <= 2%:Z * (u - l) /\
  \sum_g (group_sum (seen X) g - group_sum (seen Y) g) ^+ 2 <= 2%:Z * (u - l) ^+ 2.
Proof.
move=> lu; have width s t : l <= s <= u -> l <= t <= u -> `|s - t| <= u - l.
  move=> /andP[h1 h2] /andP[h3 h4]; rewrite ler_norml opprB.
  by apply/andP; split; apply: ler_sub.
have one X' Y' : (forall i, l <= out (X' i) <= u) -> (forall i, l <= out (Y' i) <= u) ->
    arises block node X' Y' ->
    exists A A' u1 u2, [/\ `|u1| <= u - l, `|u2| <= u - l, `|u1 + u2| <= u - l
      & forall g, group_sum (seen X') g - group_sum (seen Y') g =
          (if A == Some g then u1 else 0) + (if A' == Some g then u2 else 0)].
  move=> rX rY /arisesP[p [y [c [_ hc eY]]]].
  have keep i : i != p -> out (Y' i) = out (X' i).
    move=> ip; rewrite eY; apply: private_out => f uf; rewrite exchange_other //.
    by rewrite /moves (uf _ (y f)) eqxx.
  have gE i := congr1 group (exchange_tuple i b hc); rewrite -eY in gE.
  case d : (b \in differ tuple_in (X' p) y) gE => gE; last first.
    (* the person keeps the group: only the person's outcome changes *)
    exists (group_of (X' p)), None, (out (X' p) - out (Y' p)), 0.
    rewrite addr0 normr0 subr_ge0; split; rewrite ?width // => g.
    rewrite !group_sumE -sumrB (bigD1 p) //= big1 => [|i ip].
      rewrite /group_of gE perm1 !addr0.
      by case: eqP; rewrite ?subr0 ?subrr.
    by rewrite /group_of gE perm1 (keep i ip) subrr.
  (* the person swaps groups with the carrier j, who keeps the outcome *)
  pose j := c b; have jp : j != p := carrier_other hc d.
  exists (group_of (X' p)), (group_of (X' j)), (out (X' p) - out (X' j)), (out (X' j) - out (Y' p)).
  split; rewrite ?width //; first by rewrite addrA subrK width.
  move=> g; rewrite !group_sumE -sumrB (bigD1 p) //= (bigD1 j) //= big1 => [|i /andP[ip ij]].
    rewrite /group_of !gE tpermL tpermR (keep j jp) addr0 -/j.
    move: (out (X' p)) (out (X' j)) (out (Y' p)) => s t r.
    by do 2!case: (_ == Some g); rewrite ?subr0 ?sub0r ?addr0 ?add0r; lia.
  by rewrite /group_of gE tpermD ?(keep i ip) ?subrr // eq_sym.
move=> rX rY /orP[|] h.
  have [A [A' [u1 [u2 [h1 h2 h12 e]]]]] := one X Y rX rY h.
  by under eq_bigr do rewrite e; under [X in _ /\ X <= _]eq_bigr do rewrite e; apply: two_groups.
have [A [A' [u1 [u2 [h1 h2 h12 e]]]]] := one Y X rY rX h.
under eq_bigr do rewrite distrC e; under [X in _ /\ X <= _]eq_bigr do rewrite -sqrrN opprB e.
exact: two_groups.
Qed.
End One.

(* EXCHANGE, SEVERAL SETS OF GROUPS AND OUTCOMES. Set s of groups follows from block b_s; outcome o is
   private and lies in [l_o, u_o]. If X ~ Y, all sums together differ by at most 2 p sum_o (u_o - l_o)
   in l1 and by at most 2 p sum_o (u_o - l_o)^2 in squared l2, p the number of sets. *)
Theorem exchange_several_group_sums (S O : finType) (b : S -> B)
    (group : S -> {ffun F -> option N} -> option G) (out : O -> record -> int) (l u : O -> int) X Y
    (change := fun s o g => group_sum (contribution (b s) (group s) (out o) X) g
                            - group_sum (contribution (b s) (group s) (out o) Y) g) :
  (forall o, private (out o)) -> (forall o, l o <= u o) ->
  (forall o i, l o <= out o (X i) <= u o) -> (forall o i, l o <= out o (Y i) <= u o) ->
  adjacent X Y ->
  \sum_s \sum_o \sum_g `|change s o g| <= #|S|%:Z * (\sum_o 2%:Z * (u o - l o)) /\
  \sum_s \sum_o \sum_g change s o g ^+ 2 <= #|S|%:Z * (\sum_o 2%:Z * (u o - l o) ^+ 2).
Proof.
move=> priv lu rX rY h.
have one s o := exchange_group_sums (b s) (group s) (priv o) (lu o) (rX o) (rY o) h.
have E (z : int) : #|S|%:Z * z = \sum_(s : S) z by rewrite sumr_const -mulr_natl natz.
rewrite !E; split; apply: ler_sum => s _; apply: ler_sum => o _; by have [] := one s o.
Qed.

End Exchange.
